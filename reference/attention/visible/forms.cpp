// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/forms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "reference/attention/visible/ends.hpp"
#include "reference/attention/visible/filled.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::array<std::int64_t, 4> kQueryTiles{16, 32, 64, 128};
constexpr std::int64_t kNamedRequests = 16;
constexpr double kCostliest = 5.0;  // of an end in a form of two

// The ranges of all queries of its tile together.
Range tile_range(const RowFacts& row, std::int64_t queries) {
  const std::int64_t first = floor_to(row.place.row.query, queries);
  const std::int64_t last = std::min(first + queries, row.request().valid);
  Range range = row.declared_range(first);
  for (std::int64_t i = first; i < last; ++i) {
    const Range other = row.declared_range(i);
    range = {std::min(range.first, other.first), std::max(range.last, other.last)};
  }
  return range;
}

// Whose length a row takes for its own.
struct Other {
  std::string words;
  double cost;
  std::function<std::int64_t(const RowFacts&)> request;
};

std::vector<Other> others_of(const Observed& seen) {
  const std::int64_t N = std::ssize(seen.plan->requests);
  std::vector<Other> others;
  if (N < 2) return others;
  const auto in_range = [N](std::int64_t n) { return n < N ? n : -1; };
  others.push_back(
      {"the request with the number of its key head", 3.2, [in_range](const RowFacts& r) {
         return in_range(key_head_of(*r.seen->plan, r.place.row));
       }});
  others.push_back({"the request with the number of its head", 3.4,
                    [in_range](const RowFacts& r) { return in_range(r.place.row.head); }});
  for (const std::int64_t step : {std::int64_t{1}, N - 1}) {
    others.push_back({step == 1 ? "the next request" : "the request before it", 3.6,
                      [step, N](const RowFacts& r) {
                        return (static_cast<std::int64_t>(r.place.request) + step) % N;
                      }});
  }
  for (std::int64_t n = 0; n < std::min(N, kNamedRequests); ++n) {
    others.push_back({filled("request {}", n), 3.0 + std::log2(static_cast<double>(N)),
                      [n](const RowFacts&) { return n; }});
  }
  return others;
}

// How much longer that request is.
Number longer(const RowFacts& row, const Other& other) {
  const std::int64_t n = other.request(row);
  if (n < 0) return std::nullopt;
  const auto& lines = row.seen->lines[static_cast<std::size_t>(n)];
  if (lines.size() <= row.order) return std::nullopt;
  return lines[row.order].end() - row.line().end();
}

// Both ends of one cause.
void add_joint(const Observed& seen, std::vector<Form>& forms) {
  for (const Other& other : others_of(seen)) {
    const std::string words = "as if its request had the length of " + other.words;
    const Edge last{"", 0.0, [other](const RowFacts& r) -> Number {
                      const Number by = longer(r, other);
                      return by ? Number(r.declared_range().last + *by) : std::nullopt;
                    }};
    const Edge first{"", 0.0, [other](const RowFacts& r) -> Number {
                       const Number by = longer(r, other);
                       return by ? Number(r.declared_range().first + *by) : std::nullopt;
                     }};
    const Edge cut{"", 0.0, [other](const RowFacts& r) -> Number {
                     const Number by = longer(r, other);
                     if (!by) return std::nullopt;
                     return std::min(r.declared_range().last, r.line().end() + *by);
                   }};
    forms.push_back({as_declared(false), last, words, other.cost});
    forms.push_back({first, last, words, other.cost + 0.1});
    forms.push_back({as_declared(false), cut, words, other.cost + 0.2});
  }
  std::set<std::int64_t> tiles = tiles_of(seen);
  tiles.insert(1);
  for (const std::int64_t queries : kQueryTiles) {
    for (const std::int64_t tile : tiles) {
      const std::string words =
          filled("that some query of its tile of {} queries should see{}", queries,
                 tile == 1 ? "" : ", in whole ones of each " + tile_words(seen, tile));
      const Edge first{"", 0.0, [=](const RowFacts& r) -> Number {
                         return floor_to(tile_range(r, queries).first, tile);
                       }};
      const Edge last{"", 0.0, [=](const RowFacts& r) -> Number {
                        return std::min(ceil_to(tile_range(r, queries).last, tile), r.line().end());
                      }};
      const double cost = tile == 1 ? 5.0 : 6.0;
      forms.push_back({first, as_declared(true), words + ", at the beginning", cost + 1.0});
      forms.push_back({as_declared(false), last, words + ", at the end", cost + 1.0});
      forms.push_back({first, last, words, cost});
    }
  }
  for (const std::int64_t tile : tiles_of(seen)) {
    const Edge first{"", 0.0, [tile](const RowFacts& r) -> Number {
                       return floor_to(r.declared_range().first, tile);
                     }};
    const Edge last{"", 0.0, [tile](const RowFacts& r) -> Number {
                      return ceil_to(r.declared_range().last, tile);
                    }};
    forms.push_back({first, last,
                     "of each " + tile_words(seen, tile) + " of which it should see one",
                     tile_cost(seen, tile) + 0.5});
  }
}

}  // namespace

Range RowFacts::declared_range(std::int64_t query) const {
  const Range visible = request().visible[static_cast<std::size_t>(query)];
  const std::int64_t begin = line().t.front();
  return {std::clamp(visible.first, begin, line().end()),
          std::clamp(visible.last, begin, line().end())};
}

std::optional<Interval> Form::interval(const RowFacts& row) const {
  const Number from = first.at(row);
  const Number to = last.at(row);
  if (!from || !to) return std::nullopt;
  const Interval interval = row.line().indices({*from, *to});
  if (interval.first < interval.last) return interval;
  // Which empty interval it is makes no difference.
  const std::int64_t at = declared(*row.seen, row.place, row.line()).first;
  return Interval{at, at};
}

std::vector<Form> forms_of(const Observed& seen, const Offsets& offsets) {
  const auto [firsts, lasts] = ends_of(seen, offsets);
  std::vector<Form> forms;
  for (const Edge& last : lasts) forms.push_back({as_declared(false), last, last.words, last.cost});
  for (const Edge& first : firsts) {
    forms.push_back({first, as_declared(true), first.words, first.cost});
    for (const Edge& last : lasts) {
      if (std::max(first.cost, last.cost) > kCostliest) continue;
      forms.push_back({first, last, first.words + ", " + last.words, first.cost + last.cost + 1.0});
    }
  }
  add_joint(seen, forms);
  std::ranges::stable_sort(forms, {}, &Form::cost);
  return forms;
}

}  // namespace goldenrule::attention
