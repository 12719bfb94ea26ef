// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::attention {
namespace {

using call::Integers;

void check_attribute(const char* name, bool good, const char* expected, const std::string& actual) {
  if (!good) {
    throw Error(ErrorKind::kValue, "/convention@" + std::string(name), expected, actual);
  }
}

void check_attributes(const Attributes& a) {
  const auto in_range = [](std::int64_t x, std::int64_t low) {
    return low <= x && x <= kMaxPosition;
  };
  check_attribute("block", in_range(a.block, 1), "1 to 2^31-1", std::to_string(a.block));
  for (const auto& [name, window] :
       {std::pair{"window_left", a.window_left}, {"window_right", a.window_right}}) {
    check_attribute(name, in_range(window, -1), "-1 to 2^31-1", std::to_string(window));
  }
  const double scale = a.scale.value_or(1.0);
  check_attribute("scale", std::isfinite(scale), "a finite number", std::to_string(scale));
  check_attribute("soft_cap", std::isfinite(a.soft_cap) && a.soft_cap >= 0.0,
                  "a finite number, at least 0", std::to_string(a.soft_cap));
}

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

Table read_table(const Call& call, const Dims& d) {
  Table table;
  if (call.record.find_input("page_table") != nullptr) {
    table.name = "page_table";
    table.pages = call::integers(call.record, "page_table").value();
    table.has_holes = call.attributes.missing_page == MissingPage::kSkip;
    const std::int64_t width = call.record.inputs.at("page_table").shape()[1];
    for (std::int64_t n = 0; n <= d.N; ++n) table.first.push_back(n * width);
    return table;
  }
  table.name = "page_indices";
  table.pages = call::integers(call.record, "page_indices").value();
  table.first = call::integers(call.record, "page_indptr").value();
  // The list may be longer than the table: engines keep room for the largest batch.
  call::check_value(table.first, "page_indptr", 0, 0, 0);
  for (std::size_t n = 1; n < table.first.size(); ++n) {
    call::check_value(table.first, "page_indptr", n, table.first[n - 1], std::ssize(table.pages));
  }
  return table;
}

// FlashInfer's form of a length; without any page it is not read.
void check_last_page(const Call& call, const Dims& d, const Table& table, const Integers& lens) {
  const auto given = call::integers(call.record, "last_page_len");
  if (!given) return;
  for (std::size_t n = 0; n < lens.size(); ++n) {
    const bool is_csr = call.record.find_input("page_indptr") != nullptr;
    const std::int64_t pages =
        is_csr ? table.first[n + 1] - table.first[n] : (lens[n] + d.P - 1) / d.P;
    if (pages == 0) continue;
    const std::int64_t last = lens[n] - (pages - 1) * d.P;
    if ((*given)[n] != last) {
      call::bad_value("last_page_len", static_cast<std::int64_t>(n),
                      std::to_string(last) + ", from kv_lens=" + std::to_string(lens[n]) + " on " +
                          std::to_string(pages) + " pages of " + std::to_string(d.P),
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
  const std::int64_t needed = length / d.P + (length % d.P != 0 ? 1 : 0);
  if (needed > width) {
    call::bad_value("kv_lens", static_cast<std::int64_t>(n),
                    "at most " + std::to_string(width) + " pages of " + std::to_string(d.P),
                    length);
  }
  for (std::int64_t i = 0; i < needed; ++i) {
    const auto at = static_cast<std::size_t>(table.first[n] + i);
    const std::int64_t page = table.pages[at];
    if (page == -1 && table.has_holes) continue;
    call::check_value(table.pages, table.name, at, 0, d.pages - 1);
    const std::int64_t t = i * d.P;
    add_run(request.runs, {Source::kCache, page * d.P, t, std::min(d.P, length - t)});
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
  Integers q, k, kv;
  std::optional<Integers> offset, valid;
};

Lengths read_lengths(const Call& call, const Dims& d) {
  Lengths lengths;
  lengths.q = call::integers(call.record, "cu_seqlens_q").value();
  check_bounds(lengths.q, "cu_seqlens_q", d.total_q, "q");
  if (d.has_fresh) {
    lengths.k = call::integers(call.record, "cu_seqlens_k").value();
    check_bounds(lengths.k, "cu_seqlens_k", d.total_k, "k");
  }
  if (d.has_cache) {
    lengths.kv = call::integers(call.record, "kv_lens").value();
    call::check_range(lengths.kv, "kv_lens", 0, kMaxKeys);
  }
  lengths.offset = call::integers(call.record, "q_offset");
  if (lengths.offset) {
    call::check_range(*lengths.offset, "q_offset", -kMaxPosition, kMaxPosition);
  }
  lengths.valid = call::integers(call.record, "valid_q");
  return lengths;
}

Request make_request(const Call& call, const Dims& d, const Lengths& lengths, const Table& table,
                     std::size_t n) {
  const bool in_cache = call.attributes.block_kv == BlockKv::kInCache;
  Request request;
  request.first_query = lengths.q[n];
  request.queries = lengths.q[n + 1] - lengths.q[n];
  request.valid = request.queries;
  if (lengths.valid) {
    call::check_value(*lengths.valid, "valid_q", n, 0, request.queries);
    request.valid = (*lengths.valid)[n];
  }
  const std::int64_t cached = d.has_cache ? lengths.kv[n] : 0;
  if (d.has_cache) add_cache_runs(d, table, n, cached, request);
  if (d.has_fresh) {
    const std::int64_t fresh = lengths.k[n + 1] - lengths.k[n];
    if (fresh > kMaxKeys - cached) {
      call::bad_value("cu_seqlens_k", static_cast<std::int64_t>(n) + 1,
                      "at most " + std::to_string(kMaxKeys) + " keys of a request", fresh);
    }
    add_run(request.runs, {Source::kFresh, lengths.k[n], cached, fresh});
  }
  request.offset = lengths.offset ? (*lengths.offset)[n]
                                  : cached - (in_cache ? request.queries : std::int64_t{0});
  drop_padding(in_cache ? Source::kCache : Source::kFresh, request);
  request.visible = visible_ranges(call.attributes, request);
  return request;
}

}  // namespace

Range visible_range(const Attributes& a, std::int64_t origin, std::int64_t position) {
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

std::vector<Range> visible_ranges(const Attributes& attributes, const Request& request) {
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
    return ((row / d.P * d.H + key_head) * d.P + row % d.P) * dim;
  }
  return (row * d.H + key_head) * dim;
}

call::Shape lse_shape(const Plan& plan) {
  const Dims& d = plan.dims;
  if (plan.lse_layout == LseLayout::kTh) return {d.total_q, d.HV};
  return {d.HV, d.total_q};
}

Plan make_plan(const Call& call) {
  const Attributes& a = call.attributes;
  check_attributes(a);
  Plan plan;
  plan.dims = validate(call);
  const Dims& d = plan.dims;
  for (std::int64_t j = 0; j < d.HV; ++j) {
    plan.key_head.push_back(a.head_map == call::HeadMap::kGrouped ? j / (d.HV / d.H) : j % d.H);
  }
  call::Convention convention;
  convention.scale = a.scale;
  plan.scale = call::resolved_scale(convention, d.K);
  plan.soft_cap = a.soft_cap;
  plan.layout = a.kv_layout;
  plan.lse_base = a.lse_base;
  plan.lse_layout = a.lse_layout;
  const Lengths lengths = read_lengths(call, d);
  Table table;
  if (d.has_cache) {
    table = read_table(call, d);
    check_last_page(call, d, table, lengths.kv);
  }
  for (std::size_t n = 0; n < static_cast<std::size_t>(d.N); ++n) {
    plan.requests.push_back(make_request(call, d, lengths, table, n));
  }
  return plan;
}

}  // namespace goldenrule::attention
