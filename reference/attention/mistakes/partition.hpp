// SPDX-License-Identifier: Apache-2.0
//
// Parts of the keys of a request, as kernels cut them: split-KV, cascades, cached beside fresh
// keys.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention/plan/plan.hpp"

namespace goldenrule::attention {

/// Where the keys of a request are parted, in the order of its runs.
struct Partition {
  enum class By : std::uint8_t {
    kSource,  ///< cached keys, fresh keys
    kSize,    ///< parts of `number` keys
    kCount,   ///< `number` parts of as many keys
    kTiles,   ///< `number` parts of as many tiles of kKeyTile keys
  };
  By by = By::kSource;
  std::int64_t number = 0;

  bool operator==(const Partition&) const = default;
};

/// Ends of the parts of a request, as numbers of its keys before each.
using PartEnds = std::vector<std::int64_t>;
[[nodiscard]] PartEnds ends_of(const Request& request, const Partition& partition);

/// The most parts of a request of the plan.
[[nodiscard]] std::int64_t count_of(const Plan& plan, const Partition& partition);

/// A request with the keys of part `p` alone, which may be none.
[[nodiscard]] Request part_of(const Request& request, const PartEnds& ends, std::int64_t p);

/// Of which queries see keys. Positions grow with the runs, so what a query sees are consecutive
/// keys, and the parts that they are in are consecutive but for parts without any key.
struct SeenParts {
  std::int64_t first = 0, last = -1;
  [[nodiscard]] std::int64_t count() const { return last - first + 1; }
  [[nodiscard]] bool contains(std::int64_t p) const { return first <= p && p <= last; }
};
/// Of each valid query of the request.
[[nodiscard]] std::vector<SeenParts> seen_parts(const Request& request, const PartEnds& ends);

}  // namespace goldenrule::attention
