// SPDX-License-Identifier: Apache-2.0
//
// Visible sets as functions of what a call has: query, position, request, heads, lengths, tiles and
// pages. A form moves one end of the declared range, or both, and says so in words. Its cost is
// about the bits that say which form it is: an offset costs the logarithm of its size, a constant
// that the call itself has costs little. Of forms that reproduce a capture the cheapest is said.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "reference/attention/visible/readings.hpp"

namespace goldenrule::attention {

/// A row as forms see it, in one order of keys.
struct RowFacts {
  const Observed* seen = nullptr;
  Place place;
  std::size_t order = 0;  ///< of the lines of its request

  [[nodiscard]] const Request& request() const { return seen->plan->requests[place.request]; }
  [[nodiscard]] const KeyLine& line() const { return seen->lines[place.request][order]; }
  [[nodiscard]] std::int64_t position() const { return request().offset + place.row.query; }
  /// Positions that it, or another query of its request, is to see; within those of its keys.
  [[nodiscard]] Range declared_range(std::int64_t query) const;
  [[nodiscard]] Range declared_range() const { return declared_range(place.row.query); }
};

/// One end of a range as a position; nothing where the form makes no sense.
struct Edge {
  std::string words;  ///< "but the last 3 that it should see"; empty: as declared
  double cost = 0.0;
  std::function<std::optional<std::int64_t>(const RowFacts&)> at;
};

struct Form {
  Edge first, last;
  std::string words;  ///< of both
  double cost = 0.0;

  /// Which interval of its order the row sees.
  [[nodiscard]] std::optional<Interval> interval(const RowFacts& row) const;
};

/// Numbers that forms may take, from the intervals that fit some rows.
struct Offsets {
  std::set<std::int64_t> first, last;                    ///< from the declared ends
  std::set<std::int64_t> index{0}, end{0}, from_end{0};  ///< from its own index, the last key, both
  std::set<std::int64_t> most, width;                    ///< position of the end, number of keys
};
/// Those that occur in most rows; `fits[i]` are the intervals of rows[i].
[[nodiscard]] Offsets offsets_of(std::span<const RowFacts> rows,
                                 std::span<const std::vector<Interval>> fits);

/// The forms that a call has, the cheapest first.
[[nodiscard]] std::vector<Form> forms_of(const Observed& seen, const Offsets& offsets);

}  // namespace goldenrule::attention
