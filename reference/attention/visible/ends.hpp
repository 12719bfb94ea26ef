// SPDX-License-Identifier: Apache-2.0
//
// The ends that ranges of keys may have, one by one, and what forms of both ends share with them.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reference/attention/visible/forms.hpp"

namespace goldenrule::attention {

using Number = std::optional<std::int64_t>;

[[nodiscard]] inline std::int64_t floor_to(std::int64_t x, std::int64_t tile) {
  return x - ((x % tile) + tile) % tile;
}
[[nodiscard]] inline std::int64_t ceil_to(std::int64_t x, std::int64_t tile) {
  return floor_to(x + tile - 1, tile);
}

/// Keys of a tile: powers of two and the page.
[[nodiscard]] std::set<std::int64_t> tiles_of(const Observed& seen);
/// "page of 16 keys"
[[nodiscard]] std::string tile_words(const Observed& seen, std::int64_t tile);
[[nodiscard]] double tile_cost(const Observed& seen, std::int64_t tile);

[[nodiscard]] Edge as_declared(bool last);

struct Ends {
  std::vector<Edge> firsts, lasts;
};
[[nodiscard]] Ends ends_of(const Observed& seen, const Offsets& offsets);

}  // namespace goldenrule::attention
