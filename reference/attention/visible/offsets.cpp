// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "reference/attention/visible/forms.hpp"

namespace goldenrule::attention {
namespace {

// How many rows have a number.
class Votes {
 public:
  void add(std::int64_t number, std::size_t row) { rows_[number].insert(row); }
  [[nodiscard]] std::set<std::int64_t> most() const {
    constexpr std::size_t kKept = 8;
    std::vector<std::pair<std::size_t, std::int64_t>> order;
    for (const auto& [number, rows] : rows_) order.emplace_back(rows.size(), number);
    std::ranges::stable_sort(order, std::greater{}, [](const auto& vote) { return vote.first; });
    order.resize(std::min(order.size(), kKept));
    std::set<std::int64_t> kept;
    for (const auto& [count, number] : order) kept.insert(number);
    return kept;
  }

 private:
  std::map<std::int64_t, std::set<std::size_t>> rows_;
};

}  // namespace

Offsets offsets_of(std::span<const RowFacts> rows, std::span<const std::vector<Interval>> fits) {
  Votes first, last, index, end, from_end, most, width;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RowFacts& row = rows[i];
    const KeyLine& line = row.line();
    const Range range = row.declared_range();
    const std::int64_t own = row.place.row.query + 1;
    for (const Interval& fit : fits[i]) {
      if (fit.first == fit.last) continue;
      const Range seen = line.positions(fit);
      first.add(seen.first - range.first, i);
      last.add(seen.last - range.last, i);
      index.add(seen.last - own, i);
      end.add(seen.last - line.end(), i);
      from_end.add(seen.last - (line.end() - row.request().queries + own), i);
      from_end.add(fit.last - (line.own - row.request().queries + own), i);
      most.add(seen.last, i);
      width.add(seen.last - seen.first, i);
    }
  }
  Offsets offsets{first.most(),    last.most(), index.most(), end.most(),
                  from_end.most(), most.most(), width.most()};
  offsets.first.erase(0);
  offsets.last.erase(0);
  for (auto* ends : {&offsets.index, &offsets.end, &offsets.from_end}) ends->insert(0);
  return offsets;
}

}  // namespace goldenrule::attention
