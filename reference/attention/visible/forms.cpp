// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/forms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "reference/attention/visible/filled.hpp"

namespace goldenrule::attention {
namespace {

using Number = std::optional<std::int64_t>;

constexpr std::array<std::int64_t, 5> kTiles{8, 16, 32, 64, 128};
constexpr std::array<std::int64_t, 4> kQueryTiles{16, 32, 64, 128};
constexpr std::int64_t kNamedRequests = 16;
constexpr const char* kBeyond = ", beyond the keys of its request too";
constexpr double kCostliest = 5.0;  // of an end in a form of two

double bits(std::int64_t offset) {
  return std::log2(1.0 + 2.0 * std::fabs(static_cast<double>(offset)));
}

// "the last that", "the last 3 that"
std::string several(const char* which, std::int64_t n) {
  return n == 1 ? which : filled("{} {}", which, n);
}

std::int64_t floor_to(std::int64_t x, std::int64_t tile) {
  return x - ((x % tile) + tile) % tile;
}
std::int64_t ceil_to(std::int64_t x, std::int64_t tile) { return floor_to(x + tile - 1, tile); }

std::string tile_words(const Observed& seen, std::int64_t tile) {
  return tile == seen.plan->dims.page_size ? filled("page of {} keys", tile)
                                           : filled("tile of {} keys", tile);
}

std::set<std::int64_t> tiles_of(const Observed& seen) {
  std::set<std::int64_t> tiles(kTiles.begin(), kTiles.end());
  if (seen.plan->dims.page_size > 1) tiles.insert(seen.plan->dims.page_size);
  return tiles;
}

double tile_cost(const Observed& seen, std::int64_t tile) {
  return tile == seen.plan->dims.page_size ? 3.0 : 4.0;
}

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
  others.push_back({"the request with the number of its key head", 3.2, [in_range](const RowFacts& r) {
                      return in_range(key_head_of(*r.seen->plan, r.place.row));
                    }});
  others.push_back({"the request with the number of its head", 3.4, [in_range](const RowFacts& r) {
                      return in_range(r.place.row.head);
                    }});
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

using Edges = std::vector<Edge>;

// The position behind the first `n` keys.
std::int64_t behind(const KeyLine& line, std::int64_t n) {
  if (n <= 0) return line.t.front();
  return line.t[static_cast<std::size_t>(std::min(n, line.size())) - 1] + 1;
}

bool has_gaps(const Observed& seen) {
  for (const auto& lines : seen.lines) {
    for (const KeyLine& line : lines) {
      if (line.t.back() - line.t.front() + 1 != line.size()) return true;
    }
  }
  return false;
}

void add_offsets(const Offsets& offsets, Edges& firsts, Edges& lasts) {
  for (const std::int64_t c : offsets.last) {
    lasts.push_back({c < 0 ? filled("but {} that it should see", several("the last", -c))
                           : filled("and {} behind the last that it should see", c),
                     1.0 + bits(c),
                     [c](const RowFacts& r) -> Number { return r.declared_range().last + c; }});
  }
  for (const std::int64_t c : offsets.first) {
    firsts.push_back({c > 0 ? filled("but {} that it should see", several("the first", c))
                            : filled("and {} before the first that it should see", -c),
                      1.0 + bits(c),
                      [c](const RowFacts& r) -> Number { return r.declared_range().first + c; }});
  }
  for (const std::int64_t n : offsets.width) {
    firsts.push_back({filled("but no more than the last {}: a window", n), 4.0 + bits(n),
                      [n](const RowFacts& r) -> Number {
                        const Range range = r.declared_range();
                        return std::max(range.first, range.last - n);
                      }});
  }
  for (const std::int64_t n : offsets.most) {
    lasts.push_back({filled("but none at position {} or behind it", n), 4.0 + bits(n),
                     [n](const RowFacts& r) -> Number {
                       return std::min(r.declared_range().last, n);
                     }});
  }
}

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

std::string last_at_end(std::int64_t c) {
  if (c == 0) return "as if the last query stood at the last key (bottom right)";
  return filled("as if the last query stood {} {} the last key", std::abs(c),
                     c < 0 ? "before" : "behind");
}

// Ends that the call itself has, and offsets from them.
void add_ends(const Offsets& offsets, Edges& firsts, Edges& lasts) {
  firsts.push_back({"from the first one on, whatever the window is", 1.5,
                    [](const RowFacts& r) -> Number { return r.line().t.front(); }});
  for (const std::int64_t c : offsets.index) {
    const std::string words =
        c == 0 ? "up to its own index in the call: the causal mask begins at the first key (top left)"
               : filled("up to its own index in the call {} {}: the causal mask begins at the "
                             "first key (top left)",
                             c < 0 ? "less" : "and", std::abs(c));
    lasts.push_back({words, 1.0 + 1.5 * bits(c),
                     [c](const RowFacts& r) -> Number { return r.place.row.query + 1 + c; }});
  }
  for (const std::int64_t c : offsets.end) {
    const std::string words =
        c == 0  ? "up to the last of its request, whatever the mask is"
        : c < 0 ? filled("up to the last of its request but {}, whatever the mask is", -c)
                : filled("up to {} behind the last of its request, whatever the mask is", c);
    lasts.push_back({words, 1.5 + 1.5 * bits(c),
                     [c](const RowFacts& r) -> Number { return r.line().end() + c; }});
  }
  for (const std::int64_t c : offsets.from_end) {
    lasts.push_back({last_at_end(c), 2.0 + 1.5 * bits(c), [c](const RowFacts& r) -> Number {
                       return r.line().end() - r.request().queries + r.place.row.query + 1 + c;
                     }});
  }
}

// The same in numbers of keys: where positions have gaps, a mask may count the keys that there are.
void add_counted_ends(const Offsets& offsets, Edges& lasts) {
  const auto add = [&](const std::string& words, double cost, auto count) {
    lasts.push_back({words + ", counted in keys, not in positions", cost,
                     [count](const RowFacts& r) -> Number { return behind(r.line(), count(r)); }});
  };
  add("up to as many as positions are before its end", 2.0,
      [](const RowFacts& r) { return r.declared_range().last; });
  for (const std::int64_t c : offsets.from_end) {
    add(last_at_end(c), 2.5 + 1.5 * bits(c), [c](const RowFacts& r) {
      return r.line().own - r.request().queries + r.place.row.query + 1 + c;
    });
  }
}

void add_tiles(const Observed& seen, Edges& firsts, Edges& lasts) {
  for (const std::int64_t tile : tiles_of(seen)) {
    const std::string name = tile_words(seen, tile);
    const double cost = tile_cost(seen, tile);
    lasts.push_back({"up to the end of the " + name, cost, [tile](const RowFacts& r) -> Number {
                       return ceil_to(r.declared_range().last, tile);
                     }});
    lasts.push_back({"but those of the last " + name + " unless it is whole", cost,
                     [tile](const RowFacts& r) -> Number {
                       return floor_to(r.declared_range().last, tile);
                     }});
    firsts.push_back({"from the beginning of the " + name, cost,
                      [tile](const RowFacts& r) -> Number {
                        return floor_to(r.declared_range().first, tile);
                      }});
    firsts.push_back({"but those of the first " + name + " unless it is whole", cost,
                      [tile](const RowFacts& r) -> Number {
                        return ceil_to(r.declared_range().first, tile);
                      }});
  }
}

// The same ends no farther than the last key of the request; the others say that they may be.
Edges within_keys(Edges& lasts) {
  Edges within;
  for (Edge& last : lasts) {
    within.push_back({last.words, last.cost - 0.1, [at = last.at](const RowFacts& r) -> Number {
                        const Number end = at(r);
                        return end ? Number(std::min(*end, r.line().end())) : std::nullopt;
                      }});
    last.words += kBeyond;
  }
  return within;
}

Edge as_declared(bool last) {
  return {"", 0.0, [last](const RowFacts& r) -> Number {
            const Range range = r.declared_range();
            return last ? range.last : range.first;
          }};
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
    forms.push_back({first, last, "of each " + tile_words(seen, tile) + " of which it should see one",
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
  Offsets offsets{first.most(), last.most(), index.most(), end.most(), from_end.most(),
                  most.most(),  width.most()};
  offsets.first.erase(0);
  offsets.last.erase(0);
  for (auto* ends : {&offsets.index, &offsets.end, &offsets.from_end}) ends->insert(0);
  return offsets;
}

std::vector<Form> forms_of(const Observed& seen, const Offsets& offsets) {
  Edges firsts;
  Edges lasts;
  add_ends(offsets, firsts, lasts);
  if (has_gaps(seen)) add_counted_ends(offsets, lasts);
  add_offsets(offsets, firsts, lasts);
  add_tiles(seen, firsts, lasts);
  for (Edge& last : within_keys(lasts)) lasts.push_back(std::move(last));
  std::vector<Form> forms;
  for (const Edge& last : lasts) forms.push_back({as_declared(false), last, last.words, last.cost});
  for (const Edge& first : firsts) {
    forms.push_back({first, as_declared(true), first.words, first.cost});
    for (const Edge& last : lasts) {
      if (std::max(first.cost, last.cost) > kCostliest) continue;
      forms.push_back(
          {first, last, first.words + ", " + last.words, first.cost + last.cost + 1.0});
    }
  }
  add_joint(seen, forms);
  std::ranges::stable_sort(forms, {}, &Form::cost);
  return forms;
}

}  // namespace goldenrule::attention
