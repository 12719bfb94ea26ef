// SPDX-License-Identifier: Apache-2.0
//
// Where the failing indices of one axis depend on those of another: heads that differ from request
// to request, key channels above the diagonal of a state. The failing cells (a, b) of two axes are
// described by a comparison of the indices, or by up to three sets of a with one set of b each.
//
// Chance: m failing elements that fell at random on the box of their indices would all lie in cells
// that hold a share x of it with probability x^m, and in any of c descriptions with probability at
// most c x^m. Cells are described where this is below kChance. A box without a gap has x = 1, so
// nothing is said of it here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace goldenrule::explain {

/// How an axis is called: one index, several of them, and the letter in a condition.
struct AxisName {
  std::string one, many, letter;
};

struct CellAxis {
  AxisName name;
  std::vector<std::int64_t> elements;  ///< how many each index has, up to a factor
};

struct Cells {
  std::string words;        ///< "heads j < 2 of sequence 0 and head 3 of sequence 2"
  double log_chance = 0.0;  ///< of m elements in cells like these
  double share = 1.0;       ///< of their box
};

/// `hits[a * size of b + b]` failing elements in each cell; nothing where the axes say all, or
/// where no description is short.
[[nodiscard]] std::optional<Cells> failing_cells(const CellAxis& a, const CellAxis& b,
                                                 std::span<const std::int64_t> hits);

}  // namespace goldenrule::explain
