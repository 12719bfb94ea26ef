// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/visible_sets.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/attention/emulation/emulate.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/slice.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {

using attention::Plan;
using attention::Range;
using attention::Request;

std::string drawn_attention(Draws& draws, const std::string& mask, bool cached, std::int64_t page) {
  const std::int64_t N = draws.between(2, 3);
  std::string lens, ctx;
  for (std::int64_t n = 0; n < N; ++n) {
    lens += fmt::format("{}{}", n > 0 ? "," : "", draws.between(4, 9) + (cached ? 0 : 40));
    ctx += fmt::format("{}{}", n > 0 ? "," : "", draws.between(20, 70));
  }
  const std::int64_t H = draws.between(1, 2);
  std::string line = fmt::format("op=attention mode={} lens={}{} H={} HV={} K=32 V={} {}",
                                 cached ? "decode" : "prefill", lens, cached ? " ctx=" + ctx : "",
                                 H, H * draws.between(1, 3), draws.of<int>({16, 32}), mask);
  if (cached) {
    line +=
        fmt::format(" page={} kv_layout={} table={}", page, draws.of<std::string>({"nhd", "hnd"}),
                    draws.of<std::string>({"permuted", "csr"}));
  }
  line += fmt::format(" io={}", draws.of<std::string>({"bf16", "f16"}));
  if (draws.between(0, 3) == 0) line += " soft_cap=30";
  return line + fmt::format(" seed={} pattern=A", draws.between(1, 100000));
}

const std::vector<std::string>& kinds_of_ranges() {
  static const std::vector<std::string> kinds{
      "top left",          "last missing", "last more",   "window first missing",
      "window first more", "page",         "window page", "whole"};
  return kinds;
}

DrawnRanges drawn_ranges(const std::string& kind, Draws& draws) {
  const std::int64_t c = draws.between(2, 6);
  const std::int64_t page = draws.of<std::int64_t>({8, 16});
  const std::string window = fmt::format(
      "mask={} window_left={}", draws.of<std::string>({"causal", "full"}), draws.between(9, 15));
  if (kind == "top left") {
    return {drawn_attention(draws, "mask=causal", true, page),
            [](Range& r, std::int64_t i, const Request&) { r.last = i + 1; }, "top left"};
  }
  if (kind == "last missing") {
    return {drawn_attention(draws, draws.between(0, 1) == 0 ? "mask=causal" : window, true, page),
            [c](Range& r, std::int64_t, const Request& q) {
              r.last = std::min(r.last, q.offset + q.queries) - c;
            },
            fmt::format("but the last {} that it should see", c)};
  }
  if (kind == "last more") {
    return {drawn_attention(draws, "mask=causal", false, page),
            [c](Range& r, std::int64_t, const Request&) { r.last += c; },
            fmt::format("and {} behind the last that it should see", c)};
  }
  if (kind == "window first missing") {
    return {drawn_attention(draws, window, draws.between(0, 1) == 0, page),
            [c](Range& r, std::int64_t, const Request&) {
              r.first = std::max(r.first, std::int64_t{0}) + c;
            },
            fmt::format("but the first {} that it should see", c)};
  }
  if (kind == "window first more") {
    return {drawn_attention(draws, window, draws.between(0, 1) == 0, page),
            [c](Range& r, std::int64_t, const Request&) { r.first -= c; },
            fmt::format("and {} before the first that it should see", c)};
  }
  if (kind == "page") {
    return {drawn_attention(draws, "mask=causal block_kv=in_cache", true, page),
            [page](Range& r, std::int64_t, const Request&) {
              r.last = (r.last + page - 1) / page * page;
            },
            fmt::format("up to the end of the page of {} keys", page)};
  }
  if (kind == "window page") {
    return {drawn_attention(draws, window, true, page),
            [page](Range& r, std::int64_t, const Request&) {
              r.first = std::max(r.first, std::int64_t{0}) / page * page;
            },
            fmt::format("from the beginning of the page of {} keys", page)};
  }
  return {drawn_attention(draws, "mask=causal", false, page),
          [](Range& r, std::int64_t, const Request& q) {
            r = {0, q.offset + q.queries};
          },
          "whatever the mask is"};
}

Plan changed_plan(const call::Record& call, const ChangeOfRange& change) {
  Plan plan = attention::make_plan(call);
  for (Request& request : plan.requests) {
    for (std::int64_t i = 0; i < request.valid; ++i) {
      change(request.visible[static_cast<std::size_t>(i)], i, request);
    }
  }
  return plan;
}

void replace_heads(const Plan& plan, std::int64_t first_head, const call::TensorMap& other,
                   call::TensorMap& made) {
  const attention::Dims& d = plan.dims;
  for (std::int64_t row = 0; row < d.tokens; ++row) {
    for (std::int64_t j = first_head; j < d.HV; ++j) {
      for (std::int64_t x = 0; x < d.V; ++x) {
        const std::int64_t at = (row * d.HV + j) * d.V + x;
        made.at("o").set(at, other.at("o")[at]);
      }
      const auto at = static_cast<std::int64_t>(attention::lse_index(plan, row, j));
      made.at("lse").set(at, other.at("lse")[at]);
    }
  }
}

Draw draw_visible_set(Draws& draws) {
  const std::string kind = draws.of(kinds_of_ranges());
  const DrawnRanges drawn = drawn_ranges(kind, draws);
  Draw draw = drawn_call(attention::slice(), drawn.line);
  const Plan plan = attention::make_plan(draw.call), wrong = changed_plan(draw.call, drawn.change);
  const std::int64_t first_head = draws.between(0, 2) == 0 ? plan.dims.HV / 2 : 0;
  const auto seed = static_cast<std::uint64_t>(draws.between(1, 1000));
  const contract::Softmax& rounding = *draw.contract->softmax();
  call::TensorMap made = attention::emulate(draw.call, plan, rounding, seed);
  replace_heads(plan, first_head, attention::emulate(draw.call, wrong, rounding, seed), made);
  draw.made = calls::stored(draw.call, *draw.contract, made);
  draw.exact = attention::outputs_of(draw.call, plan);
  replace_heads(plan, first_head, attention::outputs_of(draw.call, wrong), draw.exact);
  draw.planted = kind + ": " + drawn.words;
  draw.words = {drawn.words};
  if (first_head > 0) {
    const std::int64_t last = plan.dims.HV - 1;
    // A mistake of the table may see the same keys: it is right in these blocks.
    draw.where = {last > first_head ? fmt::format("heads {} to {}", first_head, last)
                                    : fmt::format("head {}", last)};
    draw.sets = {[first_head](auto, auto head) { return head >= first_head; }};
    draw.words.push_back("of " + draw.where.front());
    draw.planted += " " + draw.words.back();
  }
  return draw;
}

}  // namespace goldenrule::suites
