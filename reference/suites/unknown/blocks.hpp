// SPDX-License-Identifier: Apache-2.0
//
// A kernel that errs in some blocks of a call (explain/block_map.hpp) and is right in the others:
// outputs of a right kernel that are, in some blocks, those of a mistaken one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/calls/mistake.hpp"
#include "reference/explain/block_map.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::suites {

using BlockSet = std::function<bool(std::int64_t unit, std::int64_t head)>;
using FailingBlocks = std::vector<bool>;

struct BlockPlanter {
  BlockPlanter(const verdict::Slice& of, const std::string& line);

  [[nodiscard]] calls::Kernel kernel() const;

  /// What `right` returns with the mistake around it. Nothing where the changed call is none.
  [[nodiscard]] std::optional<call::TensorMap> mistaken(const calls::Mistake& mistake,
                                                        const calls::Kernel& right) const;
  /// As a kernel stores it.
  [[nodiscard]] std::optional<call::TensorMap> mistaken(const calls::Mistake& mistake) const;

  /// Makes `outputs` those of `made` in the set; where the set has some addends of a sum, that
  /// share of it.
  void plant(call::TensorMap& outputs, const call::TensorMap& made, const BlockSet& set) const;

  /// The call with these outputs.
  [[nodiscard]] call::Record capture(const call::TensorMap& outputs) const;

  /// The blocks in which a kernel with these outputs is refused, but for sums.
  [[nodiscard]] FailingBlocks failing(const call::TensorMap& outputs) const;

  /// The words for the set, nothing where the mistake does not show both in it and outside of it.
  [[nodiscard]] std::string words(const FailingBlocks& shows, const BlockSet& set) const;

  const verdict::Slice& slice;
  call::Record call;
  const contract::Contract& contract;
  call::TensorMap honest;  ///< of a right kernel
  explain::BlockMap map;

 private:
  // How many of the blocks that an element belongs to are in the set, and how many there are.
  [[nodiscard]] std::pair<int, int> inside(const std::string& name, std::int64_t i,
                                           const BlockSet& set) const;
};

}  // namespace goldenrule::suites
