// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::attention {
namespace {

using call::Integers;

// Bounds of packed rows: ascending from 0 to `total`.
void check_bounds(const Integers& bounds, const char* name, std::int64_t total,
                  const std::string& what) {
  call::check_value(bounds, name, 0, 0, 0);
  for (std::size_t n = 1; n < bounds.size(); ++n) {
    call::check_value(bounds, name, n, bounds[n - 1], total);
  }
  if (bounds.back() != total) {
    call::bad_value(name, std::ssize(bounds) - 1, std::to_string(total) + ", the rows of " + what,
                    bounds.back());
  }
}

// The pages of each request in the order of its keys, as ranges of one list.
struct Table {
  const char* name = nullptr;
  Integers pages;
  Integers first;  // [N+1]
  bool has_holes = false;
};

Table read_table(const call::Record& call, const Dims& d) {
  Table table;
  if (call.find_input("page_table") != nullptr) {
    table.name = "page_table";
    table.pages = call::integers(call, "page_table").value();
    table.has_holes = call.convention.missing_page == MissingPage::kSkip;
    const std::int64_t width = call.inputs.at("page_table").shape()[1];
    for (std::int64_t n = 0; n <= d.rows; ++n) table.first.push_back(n * width);
    return table;
  }
  table.name = "page_indices";
  table.pages = call::integers(call, "page_indices").value();
  table.first = call::integers(call, "page_indptr").value();
  // The list may be longer than the table: engines keep room for the largest batch.
  call::check_value(table.first, "page_indptr", 0, 0, 0);
  for (std::size_t n = 1; n < table.first.size(); ++n) {
    call::check_value(table.first, "page_indptr", n, table.first[n - 1], std::ssize(table.pages));
  }
  return table;
}

// FlashInfer's form of a length; without any page it is not read.
void check_last_page(const call::Record& call, const Dims& d, const Table& table,
                     const Integers& lens) {
  const auto given = call::integers(call, "last_page_len");
  if (!given) return;
  for (std::size_t n = 0; n < lens.size(); ++n) {
    const bool is_csr = call.find_input("page_indptr") != nullptr;
    const std::int64_t pages =
        is_csr ? table.first[n + 1] - table.first[n] : (lens[n] + d.page_size - 1) / d.page_size;
    if (pages == 0) continue;
    const std::int64_t last = lens[n] - (pages - 1) * d.page_size;
    if ((*given)[n] != last) {
      call::bad_value("last_page_len", static_cast<std::int64_t>(n),
                      std::to_string(last) + ", from kv_lens=" + std::to_string(lens[n]) + " on " +
                          std::to_string(pages) + " pages of " + std::to_string(d.page_size),
                      (*given)[n]);
    }
  }
}

void add_run(std::vector<Run>& runs, Run run) {
  if (run.count <= 0) return;
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.source == run.source && last.row + last.count == run.row &&
        last.t + last.count == run.t) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

void add_cache_runs(const Dims& d, const Table& table, std::size_t n, std::int64_t length,
                    Request& request) {
  const std::int64_t width = table.first[n + 1] - table.first[n];
  // width * P may overflow: compare pages.
  const std::int64_t needed = length / d.page_size + (length % d.page_size != 0 ? 1 : 0);
  if (needed > width) {
    call::bad_value("kv_lens", static_cast<std::int64_t>(n),
                    "at most " + std::to_string(width) + " pages of " + std::to_string(d.page_size),
                    length);
  }
  for (std::int64_t i = 0; i < needed; ++i) {
    const auto at = static_cast<std::size_t>(table.first[n] + i);
    const std::int64_t page = table.pages[at];
    if (page == -1 && table.has_holes) continue;
    call::check_value(table.pages, table.name, at, 0, d.pages - 1);
    const std::int64_t t = i * d.page_size;
    add_run(request.runs,
            {Source::kCache, page * d.page_size, t, std::min(d.page_size, length - t)});
  }
}

// Takes the keys at padding positions away, where they are keys that the call itself brings.
void drop_padding(Source brought, Request& request) {
  const Range padding{request.offset + request.valid, request.offset + request.queries};
  if (padding.first >= padding.last) return;
  std::vector<Run> kept;
  for (const Run& run : request.runs) {
    if (run.source != brought) {
      kept.push_back(run);
      continue;
    }
    const std::int64_t before = std::clamp(padding.first - run.t, std::int64_t{0}, run.count);
    const std::int64_t after = std::clamp(padding.last - run.t, std::int64_t{0}, run.count);
    if (before > 0) kept.push_back({run.source, run.row, run.t, before});
    if (after < run.count) {
      kept.push_back({run.source, run.row + after, run.t + after, run.count - after});
    }
  }
  request.runs = std::move(kept);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The integers of a call beside the table.
struct Lengths {
  Integers q, kv;
  std::optional<Integers> k, offset, valid, positions, first, last;
};

Lengths read_lengths(const call::Record& call, const Dims& d) {
  Lengths lengths;
  lengths.q = call::integers(call, "cu_seqlens_q").value();
  check_bounds(lengths.q, "cu_seqlens_q", d.tokens, "q");
  if (call.find_input("cu_seqlens_k") != nullptr) {
    lengths.k = call::integers(call, "cu_seqlens_k").value();
    check_bounds(*lengths.k, "cu_seqlens_k", d.fresh_keys, "k");
  }
  if (has_cache(d)) {
    lengths.kv = call::integers(call, "kv_lens").value();
    call::check_range(lengths.kv, "kv_lens", 0, kMaxKeys);
  }
  lengths.offset = call::integers(call, "q_offset");
  if (lengths.offset) {
    call::check_range(*lengths.offset, "q_offset", -kMaxPosition, kMaxPosition);
  }
  lengths.valid = call::integers(call, "valid_q");
  lengths.positions = call::integers(call, "key_positions");
  if (lengths.positions) {
    call::check_range(*lengths.positions, "key_positions", -kMaxPosition, kMaxPosition);
  }
  for (const auto& [name, ends] :
       {std::pair{"visible_first", &lengths.first}, std::pair{"visible_last", &lengths.last}}) {
    *ends = call::integers(call, name);
    if (*ends) call::check_range(**ends, name, -kMaxRangeEnd, kMaxRangeEnd);
  }
  return lengths;
}

// The fresh keys of a request: behind its `cached` ones, or where they are said to be.
void add_fresh_runs(const Lengths& lengths, std::int64_t first, std::int64_t count,
                    std::int64_t cached, Request& request) {
  if (!lengths.positions) return add_run(request.runs, {Source::kFresh, first, cached, count});
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int64_t t = (*lengths.positions)[static_cast<std::size_t>(i)];
    add_run(request.runs, {Source::kFresh, i, t, 1});
  }
}

Request make_request(const call::Record& call, const Dims& d, const Lengths& lengths,
                     const Table& table, std::size_t n) {
  const bool in_cache = call.convention.block_kv == BlockKv::kInCache;
  Request request;
  request.first_query = lengths.q[n];
  request.queries = lengths.q[n + 1] - lengths.q[n];
  request.valid = request.queries;
  if (lengths.valid) {
    call::check_value(*lengths.valid, "valid_q", n, 0, request.queries);
    request.valid = (*lengths.valid)[n];
  }
  const std::int64_t cached = has_cache(d) ? lengths.kv[n] : 0;
  if (has_cache(d)) add_cache_runs(d, table, n, cached, request);
  if (lengths.k) {
    const Integers& bounds = *lengths.k;
    const std::int64_t fresh = bounds[n + 1] - bounds[n];
    if (fresh > kMaxKeys - cached) {
      call::bad_value("cu_seqlens_k", static_cast<std::int64_t>(n) + 1,
                      "at most " + std::to_string(kMaxKeys) + " keys of a request", fresh);
    }
    add_fresh_runs(lengths, bounds[n], fresh, cached, request);
  }
  request.offset = lengths.offset ? (*lengths.offset)[n]
                                  : cached - (in_cache ? request.queries : std::int64_t{0});
  if (!lengths.positions) drop_padding(in_cache ? Source::kCache : Source::kFresh, request);
  request.visible = visible_ranges(call.convention, request);
  for (std::size_t i = 0; lengths.first && i < request.visible.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(request.first_query) + i;
    request.visible[i] = {(*lengths.first)[at], (*lengths.last)[at]};
  }
  return request;
}

}  // namespace

Range visible_range(const call::Convention& a, std::int64_t origin, std::int64_t position) {
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  Range range{-kFar, kFar};
  if (a.mask == Mask::kCausal) range.last = position + 1;
  if (a.mask == Mask::kBlockCausal) {
    const std::int64_t base = a.block_base == BlockBase::kSegment ? origin : 0;
    range.last = base + (floor_divide(position - base, a.block) + 1) * a.block;
  }
  if (a.window_left >= 0) range.first = position - a.window_left;
  if (a.window_right >= 0) range.last = std::min(range.last, position + a.window_right + 1);
  return range;
}

std::vector<Range> visible_ranges(const call::Convention& attributes, const Request& request) {
  std::vector<Range> ranges;
  for (std::int64_t i = 0; i < request.valid; ++i) {
    ranges.push_back(visible_range(attributes, request.offset, request.offset + i));
  }
  return ranges;
}

std::int64_t key_element(const Plan& plan, Source source, std::int64_t row, std::int64_t key_head,
                         std::int64_t dim) {
  const Dims& d = plan.dims;
  if (source == Source::kCache && plan.layout == KvLayout::kHnd) {
    return ((row / d.page_size * d.H + key_head) * d.page_size + row % d.page_size) * dim;
  }
  return (row * d.H + key_head) * dim;
}

call::Shape lse_shape(const Plan& plan) {
  const Dims& d = plan.dims;
  if (plan.lse_layout == LseLayout::kTh) return {d.tokens, d.HV};
  return {d.HV, d.tokens};
}

Plan make_plan(const call::Record& call) {
  const call::Convention& a = call.convention;
  Plan plan;
  plan.dims = call::validate(call);
  const Dims& d = plan.dims;
  for (std::int64_t j = 0; j < d.HV; ++j) {
    plan.key_head.push_back(a.head_map == call::HeadMap::kGrouped ? j / (d.HV / d.H) : j % d.H);
  }
  plan.scale = call::resolved_scale(a, d.K);
  plan.soft_cap = a.soft_cap;
  plan.layout = a.kv_layout;
  plan.lse_base = a.lse_base;
  plan.lse_layout = a.lse_layout;
  const Lengths lengths = read_lengths(call, d);
  Table table;
  if (has_cache(d)) {
    table = read_table(call, d);
    check_last_page(call, d, table, lengths.kv);
  }
  for (std::size_t n = 0; n < static_cast<std::size_t>(d.rows); ++n) {
    plan.requests.push_back(make_request(call, d, lengths, table, n));
  }
  static_cast<void>(call::chain_rows(call, d));  // whose rows they are changes no plan
  return plan;
}

}  // namespace goldenrule::attention
