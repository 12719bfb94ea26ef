// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/key_lines.hpp"

#include <algorithm>

#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::attention {
namespace {

// Page ids of each request from its first one on, as far as the tensor goes.
struct Pages {
  call::Integers ids;
  call::Integers first, last;  // of each request
};

Pages read_pages(const call::Record& record, const Plan& plan) {
  Pages pages;
  if (const auto table = call::integers(record, "page_table")) {
    const std::int64_t width = record.inputs.at("page_table").shape()[1];
    pages.ids = *table;
    for (std::int64_t n = 0; n < plan.dims.rows; ++n) {
      pages.first.push_back(n * width);
      pages.last.push_back((n + 1) * width);
    }
  } else if (const auto indices = call::integers(record, "page_indices")) {
    pages.ids = *indices;
    pages.first = call::integers(record, "page_indptr").value();
    pages.last.assign(pages.first.size(), std::ssize(*indices));
  }
  return pages;
}

void add_key(KeyLine& line, KeyPlace key, std::int64_t t) {
  line.keys.push_back(key);
  line.t.push_back(t);
}

// The slots of the table from the position behind the last key on.
void extend_in_pages(const Plan& plan, const Pages& pages, std::size_t n, std::int64_t from,
                     std::int64_t until, KeyLine& line) {
  const std::int64_t P = plan.dims.page_size;
  for (std::int64_t t = from; t < until; ++t) {
    const std::int64_t at = pages.first[n] + t / P;
    if (at >= pages.last[n]) return;
    const std::int64_t page = pages.ids[static_cast<std::size_t>(at)];
    if (page < 0 || page >= plan.dims.pages) return;
    add_key(line, {Source::kCache, page * P + t % P}, t);
  }
}

void extend_in_fresh(const Plan& plan, std::int64_t until, KeyLine& line) {
  std::int64_t row = line.keys.back().row + 1;
  for (std::int64_t t = line.end(); t < until && row < plan.dims.fresh_keys; ++t, ++row) {
    add_key(line, {Source::kFresh, row}, t);
  }
}

std::int64_t cached_keys(const Request& request) {
  std::int64_t count = 0;
  for (const Run& run : request.runs) count += run.source == Source::kCache ? run.count : 0;
  return count;
}

KeyLine line_of(const Request& request, bool cache_alone) {
  KeyLine line;
  line.beside_fresh = cache_alone;
  for (const Run& run : request.runs) {
    if (cache_alone && run.source != Source::kCache) continue;
    for (std::int64_t i = 0; i < run.count; ++i) {
      add_key(line, {run.source, run.row + i}, run.t + i);
    }
  }
  line.own = line.size();
  return line;
}

}  // namespace

std::int64_t KeyLine::before(std::int64_t position) const {
  return std::ranges::lower_bound(t, position) - t.begin();
}

Interval KeyLine::indices(const Range& range) const {
  const std::int64_t first = before(range.first);
  return {first, std::max(first, before(range.last))};
}

Range KeyLine::positions(const Interval& interval) const {
  if (interval.last <= interval.first) return {};
  return {t[static_cast<std::size_t>(interval.first)],
          t[static_cast<std::size_t>(interval.last) - 1] + 1};
}

std::vector<std::vector<KeyLine>> key_lines(const call::Record& record, const Plan& plan,
                                            std::int64_t most) {
  const Pages pages = read_pages(record, plan);
  const auto lens = call::integers(record, "kv_lens");
  std::int64_t longest = 0;
  for (const Request& request : plan.requests) longest = std::max(longest, request.key_count());
  std::vector<std::vector<KeyLine>> all(plan.requests.size());
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Request& request = plan.requests[n];
    const std::int64_t cached = cached_keys(request);
    if (request.key_count() == 0 || request.key_count() > most) continue;
    const auto add = [&](bool cache_alone) {
      KeyLine line = line_of(request, cache_alone);
      if (std::ranges::adjacent_find(line.t, std::greater_equal{}) != line.t.end()) return;
      const std::int64_t until = line.end() + longest - line.own + kKeysBehind;
      if (line.keys.back().source == Source::kCache && lens) {
        extend_in_pages(plan, pages, n, (*lens)[n], until, line);
      } else {
        extend_in_fresh(plan, until, line);
      }
      all[n].push_back(std::move(line));
    };
    add(false);
    if (cached > 0 && cached < request.key_count()) add(true);
  }
  return all;
}

}  // namespace goldenrule::attention
