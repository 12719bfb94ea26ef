// SPDX-License-Identifier: Apache-2.0
//
// The orders of keys in which the visible set of a row is sought as an interval: the keys of the
// request in the order of its runs, and behind them what a kernel reaches that goes on reading,
// further slots of its pages, the next pages of its table, or the packed fresh keys of the next
// requests. Where a request has a cache and fresh keys, a second order holds the cached ones
// alone: beside an interval of it a row sees the fresh keys that it should.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention/rule/visible_keys.hpp"

namespace goldenrule::attention {

/// [first, last)
struct Interval {
  std::int64_t first = 0, last = 0;
  bool operator==(const Interval&) const = default;
};

struct KeyLine {
  std::vector<KeyPlace> keys;
  std::vector<std::int64_t> t;  ///< their positions, ascending
  std::int64_t own = 0;         ///< keys that the request has; the others stand behind
  bool beside_fresh = false;    ///< of the cache alone

  [[nodiscard]] std::int64_t size() const { return std::ssize(keys); }
  /// Position behind the last own key.
  [[nodiscard]] std::int64_t end() const {
    return own == 0 ? 0 : t[static_cast<std::size_t>(own) - 1] + 1;
  }
  /// How many keys stand before position `t`.
  [[nodiscard]] std::int64_t before(std::int64_t position) const;
  [[nodiscard]] Interval indices(const Range& range) const;
  [[nodiscard]] Range positions(const Interval& interval) const;
};

/// Keys behind those of the longest request that are looked at.
inline constexpr std::int64_t kKeysBehind = 128;

/// Orders of a request at most.
inline constexpr std::size_t kKeyOrders = 2;

/// Of each request its orders, the whole one first. None where positions do not ascend or where a
/// request has more than `most` keys.
[[nodiscard]] std::vector<std::vector<KeyLine>> key_lines(const call::Record& record,
                                                          const Plan& plan, std::int64_t most);

}  // namespace goldenrule::attention
