// SPDX-License-Identifier: Apache-2.0
//
// What is bad in each chunk of a stage that is judged by some of its heads at a time, from which
// the first bad chunk follows (stages.hpp).
#pragma once

#include <map>
#include <span>
#include <utility>

#include "reference/verdict/stage_places.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::verdict {

class BadChunks {
 public:
  /// Heads `heads` of the stage of `row` (none: all), which are those of `part`.
  void add(const StageRow& row, const call::Tensor& part, std::span<const std::int64_t> heads,
           const ExpectedStage& stage, const contract::Contract& contract,
           const StagePlaces& places);

  /// The worst element of the first one. There must be one.
  [[nodiscard]] BadStage first(const StageRow& row) const;

 private:
  struct Chunk {
    std::int64_t step = 0, elements = 0;
    double worst_by = 0.0;
    Worst worst{};
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Chunk> chunks_;  // by sequence and chunk
};

}  // namespace goldenrule::verdict
