// SPDX-License-Identifier: Apache-2.0
//
// A map of places: the place of a line in one tensor to the flat place of a line in another,
//
//   source = offset + sum_a step_a index_a,
//
// which is what a wrong stride, a wrong base, exchanged axes, an order from behind, or one row for
// all (step 0) come to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace goldenrule::explain {

struct PlacePair {
  std::vector<std::int64_t> to;  ///< indices
  std::int64_t from = 0;         ///< flat
};

struct AffineMap {
  std::int64_t offset = 0;
  std::vector<std::int64_t> steps;

  [[nodiscard]] std::int64_t operator()(const std::vector<std::int64_t>& to) const {
    std::int64_t from = offset;
    for (std::size_t a = 0; a < to.size(); ++a) from += steps[a] * to[a];
    return from;
  }
};

/// The map that most of the pairs fit: the step of an axis from the pairs that differ along it
/// alone, then the offset, each by majority. An axis along which no two pairs differ alone has the
/// step `own` of it.
[[nodiscard]] std::optional<AffineMap> fit_affine(const std::vector<PlacePair>& pairs,
                                                  const std::vector<std::int64_t>& own);

}  // namespace goldenrule::explain
