// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/ends.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "reference/attention/visible/filled.hpp"

namespace goldenrule::attention {
namespace {

using Edges = std::vector<Edge>;

constexpr std::array<std::int64_t, 5> kTiles{8, 16, 32, 64, 128};
constexpr const char* kBeyond = ", beyond the keys of its request too";

double bits(std::int64_t offset) {
  return std::log2(1.0 + 2.0 * std::fabs(static_cast<double>(offset)));
}

// "the last that", "the last 3 that"
std::string several(const char* which, std::int64_t n) {
  return n == 1 ? which : filled("{} {}", which, n);
}

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
    lasts.push_back(
        {filled("but none at position {} or behind it", n), 4.0 + bits(n),
         [n](const RowFacts& r) -> Number { return std::min(r.declared_range().last, n); }});
  }
}

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
        c == 0
            ? "up to its own index in the call: the causal mask begins at the first key (top left)"
            : filled(
                  "up to its own index in the call {} {}: the causal mask begins at the "
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
    lasts.push_back(
        {"but those of the last " + name + " unless it is whole", cost,
         [tile](const RowFacts& r) -> Number { return floor_to(r.declared_range().last, tile); }});
    firsts.push_back(
        {"from the beginning of the " + name, cost,
         [tile](const RowFacts& r) -> Number { return floor_to(r.declared_range().first, tile); }});
    firsts.push_back(
        {"but those of the first " + name + " unless it is whole", cost,
         [tile](const RowFacts& r) -> Number { return ceil_to(r.declared_range().first, tile); }});
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

}  // namespace

std::set<std::int64_t> tiles_of(const Observed& seen) {
  std::set<std::int64_t> tiles(kTiles.begin(), kTiles.end());
  if (seen.plan->dims.page_size > 1) tiles.insert(seen.plan->dims.page_size);
  return tiles;
}

std::string tile_words(const Observed& seen, std::int64_t tile) {
  return tile == seen.plan->dims.page_size ? filled("page of {} keys", tile)
                                           : filled("tile of {} keys", tile);
}

double tile_cost(const Observed& seen, std::int64_t tile) {
  return tile == seen.plan->dims.page_size ? 3.0 : 4.0;
}

Edge as_declared(bool last) {
  return {"", 0.0, [last](const RowFacts& r) -> Number {
            const Range range = r.declared_range();
            return last ? range.last : range.first;
          }};
}

Ends ends_of(const Observed& seen, const Offsets& offsets) {
  Edges firsts;
  Edges lasts;
  add_ends(offsets, firsts, lasts);
  if (has_gaps(seen)) add_counted_ends(offsets, lasts);
  add_offsets(offsets, firsts, lasts);
  add_tiles(seen, firsts, lasts);
  for (Edge& last : within_keys(lasts)) lasts.push_back(std::move(last));
  return {std::move(firsts), std::move(lasts)};
}

}  // namespace goldenrule::attention
