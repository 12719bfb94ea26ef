// SPDX-License-Identifier: Apache-2.0
//
// Where the indices of a stage lie in the sequences of a call: chunks begin with each sequence, and
// stages have one axis of all tokens or of all chunks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/verdict/coordinates.hpp"

namespace goldenrule::verdict {

class StagePlaces {
 public:
  StagePlaces(const call::Record& record, std::int64_t chunk);

  struct Place {
    std::int64_t sequence = 0, chunk = 0;  ///< the chunk counted in the sequence
    std::int64_t behind = 0;               ///< chunks of the sequence behind this one
    std::int64_t token = -1;               ///< of the sequence; -1: a whole chunk
  };
  /// Of an index of axis "token" or "chunk".
  [[nodiscard]] Place of(std::string_view axis, std::int64_t index) const;

  /// An index of a stage whose axes count these.
  [[nodiscard]] Coordinates named(const std::vector<std::string_view>& axes,
                                  const call::Shape& index) const;

 private:
  struct Begin {
    std::int64_t number, token, chunk, count;  // the chunks of it
  };
  std::int64_t chunk_;
  std::vector<Begin> sequences_;  // those with tokens
};

}  // namespace goldenrule::verdict
