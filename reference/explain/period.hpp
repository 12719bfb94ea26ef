// SPDX-License-Identifier: Apache-2.0
//
// Periodic sets of indices: {j : (j - first) mod modulus < width}, as tiles leave them (the last
// 16 of each 64 tokens, the odd value heads of each key head).
//
// Chance. A set is such a set or it is not; how many elements fail at an index says nothing of its
// shape. Of the C(n, s) sets of s indices on an axis of n, those with a modulus m <= n / 2 are few:
// for m there are m places to begin, and s leaves one width to each, so at most
//
//   sum_{m <= n/2} m <= (n/2) (n/2 + 1) / 2.
//
// A set is called periodic where this, over C(n, s), is below kChance.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace goldenrule::explain {

struct Period {
  std::int64_t modulus = 1, first = 0, width = 1;  ///< 0 <= first < modulus, 0 < width < modulus

  [[nodiscard]] bool contains(std::int64_t j) const {
    return ((j - first) % modulus + modulus) % modulus < width;
  }
  bool operator==(const Period&) const = default;
};

/// The periodic set that `members[j] != 0` is exactly, with the smallest modulus, at least two of
/// which fit on the axis; nothing where there is none, or where chance would make one.
[[nodiscard]] std::optional<Period> period_of(std::span<const std::uint8_t> members);

/// "v % 16 < 4", "4 <= v % 16 < 8", "v % 16 < 2 or v % 16 >= 14"
[[nodiscard]] std::string condition(const Period& period, const std::string& letter);

}  // namespace goldenrule::explain
