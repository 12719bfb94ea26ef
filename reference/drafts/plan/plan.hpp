// SPDX-License-Identifier: Apache-2.0
//
// What a draft acceptance asks for, with its values checked. Files may come from anybody, so
// whatever a row reads must make sense: tokens are in the vocabulary, uniforms from 0 to 1, noise
// is above 0, and probabilities are such. Each is at least 0 and their sum is 1 within
//
//   h + 8 u + Z (u + e),   u = 2^-24,
//
// for Z numbers of a type with unit roundoff h and smallest positive number 2 e that a softmax in
// fp32 made: its sum errs by Z u in any order, a quotient by less than 8 u with the exponentials of
// the denominator, storing them by h, and numbers below the normal ones by e each.
//
// What no row reads may hold anything: rows of padding (start = -1), drafts behind draft_lens and
// the probabilities of their positions.
#pragma once

#include <cstdint>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::drafts {

struct Row {
  std::int64_t start = 0;   ///< tokens before the anchor; -1: padding
  std::int64_t drafts = 0;  ///< at most S

  [[nodiscard]] bool padded() const { return start < 0; }
};

struct Plan {
  call::Dims dims;
  std::vector<Row> rows;
  std::vector<std::int64_t> stops;  ///< ascending

  [[nodiscard]] bool is_stop(std::int64_t token) const;
};

/// Throws Error for a call that makes no sense.
[[nodiscard]] Plan make_plan(const call::Record& record);

/// The largest distance from 1 of a sum of probabilities of this type.
[[nodiscard]] double sum_bound(call::DType type, std::int64_t Z);

}  // namespace goldenrule::drafts
