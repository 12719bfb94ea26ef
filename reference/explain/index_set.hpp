// SPDX-License-Identifier: Apache-2.0
//
// The shape of a set of indices on one axis, in words: where the indices that fail are a tail, a
// range, one residue class, a periodic set (period.hpp) or a few ranges, and where that is more
// than chance.
//
// Chance: m failing elements that fell at random on n indices would all lie in a given set of s of
// them with probability (s/n)^m, and among c shapes of that kind with probability at most c
// (s/n)^m. A shape is named where this is below kChance.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/explain/period.hpp"

namespace goldenrule::explain {

inline constexpr double kChance = 1e-3;
/// Members that a period must have: any two indices have a step.
inline constexpr std::int64_t kPeriodic = 3;

enum class Shape {
  kNothing,    ///< no index
  kAll,        ///< every index, or no shape that is more than chance
  kOne,        ///< only first
  kAllButOne,  ///< all but first
  kFrom,       ///< from first on
  kBelow,      ///< up to last
  kRange,      ///< first to last
  kResidue,    ///< every modulus-th, beginning with first
  kPeriod,     ///< a periodic set that is no residue class
  kFew,        ///< up to six ranges without order
};

struct IndexSet {
  Shape shape = Shape::kAll;
  std::int64_t first = 0, last = 0;  ///< of the set; kAllButOne: first is the one left out
  std::int64_t modulus = 1;
  Period period{};                   ///< of kPeriod
  std::int64_t count = 0, size = 0;  ///< indices in the set and on the axis
  std::int64_t ranges = 0;           ///< of indices that follow each other
};

/// `hits[i]` failing elements at index i.
[[nodiscard]] IndexSet index_set(std::span<const std::int64_t> hits);

/// ln of how many sets of this shape there are.
[[nodiscard]] double log_alternatives(const IndexSet& set);

/// ln C(n, k)
[[nodiscard]] double log_choices(std::int64_t n, std::int64_t k);

/// "2nd", "16th"
[[nodiscard]] std::string ordinal(std::int64_t n);

/// "v >= 128", "v = 3", "v % 16 = 5", "v in {2, 4-7}": a condition on `letter`; empty for kAll.
[[nodiscard]] std::string condition(const IndexSet& set, std::span<const std::int64_t> hits,
                                    const std::string& letter);

/// One axis of a box: "key channel", "k", and how often each of its indices is in it.
struct BoxAxis {
  std::string word, letter;
  std::vector<std::int64_t> hits;
};
/// "head 3, key channels k >= 64": the axes that say something; empty for all of a tensor.
[[nodiscard]] std::string box_in_words(std::span<const BoxAxis> axes);

}  // namespace goldenrule::explain
