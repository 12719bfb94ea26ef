// SPDX-License-Identifier: Apache-2.0
//
// In how many of the sequences and heads in which a mistake makes elements fail some do: what a
// capture that it explains has, and one of a mistake in few of them has not (scatter.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/explain/block_map.hpp"

namespace goldenrule::explain {

class Reach {
 public:
  Reach(const call::Record& call, const call::TensorMap& outputs);

  /// Element `i` of an output: the probability with which it is expected to fail, and whether it
  /// does. What several blocks add to tells nothing of one of them.
  void add(const std::string& output, std::size_t i, double expected, bool fails);

  /// Of the blocks with four expected failures, the share that has one; 1 where there is none.
  [[nodiscard]] double share() const;

 private:
  struct Block {
    double expected = 0.0;
    std::int64_t failing = 0;
  };
  const BlockMap map_;
  std::vector<Block> blocks_;
};

}  // namespace goldenrule::explain
