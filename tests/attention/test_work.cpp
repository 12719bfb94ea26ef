// SPDX-License-Identifier: Apache-2.0
//
// What a verdict computes is known before it begins, whatever a small file describes: pairs of a
// row and a key against a count one by one, and refusals with both numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/attention/slice.hpp"
#include "reference/attention/work.hpp"
#include "reference/verdict/verdict.hpp"
#include "reference/verdict/work.hpp"

using namespace goldenrule;
using scalar::Precision;

namespace {

double counted(const attention::Plan& plan) {
  double pairs = 0.0;
  for (const attention::Request& request : plan.requests) {
    for (const attention::Range& range : request.visible) {
      for (const attention::Run& run : request.runs) {
        for (std::int64_t i = 0; i < run.count; ++i) pairs += range.contains(run.t + i) ? 1.0 : 0.0;
      }
    }
  }
  return pairs * static_cast<double>(plan.dims.HV);
}

/// A page of one token that a request names `keys` times.
call::Record one_page(std::int64_t keys, std::int64_t queries) {
  call::Record record;
  record.op = call::Op::kAttention;
  record.mode = call::Mode::kDecode;
  record.convention.block_kv = call::BlockKv::kInCache;
  const auto integers = [](call::Shape shape, std::vector<double> values) {
    return call::Tensor(call::DType::kI32, std::move(shape), values);
  };
  record.inputs["q"] = call::Tensor(call::DType::kBF16, {queries, 1, 16});
  record.inputs["k_cache"] = record.inputs["v_cache"] =
      call::Tensor(call::DType::kBF16, {1, 1, 1, 16});
  record.inputs["page_table"] =
      integers({1, keys}, std::vector<double>(static_cast<std::size_t>(keys)));
  record.inputs["kv_lens"] = integers({1}, {static_cast<double>(keys)});
  record.inputs["cu_seqlens_q"] = integers({2}, {0.0, static_cast<double>(queries)});
  record.outputs["o"] = call::Tensor(call::DType::kBF16, {queries, 1, 16});
  return record;
}

}  // namespace

TEST_CASE("attention: work counts every pair of the suites, and none twice where keys rise") {
  for (const char* suite : {"attention_smoke", "attention_boundary"}) {
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      const call::Record record = cases::make_record(c);
      CAPTURE(record.case_line);
      const attention::Plan plan = attention::make_plan(record);
      const double pairs = attention::extent_of(plan).pairs;
      const bool holes = record.convention.missing_page == call::MissingPage::kSkip ||
                         record.find_input("key_positions") != nullptr ||
                         record.find_input("valid_q") != nullptr;
      CHECK(pairs >= counted(plan));
      if (!holes) CHECK(pairs == counted(plan));
    }
  }
}

TEST_CASE("attention: a page that is named often is as much work as so many keys") {
  const attention::Extent few = attention::extent_of(attention::make_plan(one_page(1000, 3)));
  const attention::Extent many = attention::extent_of(attention::make_plan(one_page(4000, 6)));
  CHECK(few.pairs == 3000.0);
  CHECK(many.pairs == 24000.0);
  CHECK(many.visits == 24000.0);  // a run for each page
}

TEST_CASE("attention: keys in any order are bounded by their number") {
  attention::Plan plan = attention::make_plan(one_page(4, 1));
  plan.requests[0].visible = {{0, 1}};
  CHECK(attention::extent_of(plan).pairs == 1.0);
  for (attention::Run& run : plan.requests[0].runs) run.t = 0;  // all at one position
  CHECK(attention::extent_of(plan).pairs == 4.0);
  plan.requests[0].visible = {{1, 1}};
  CHECK(attention::extent_of(plan).pairs == 0.0);
}

TEST_CASE("attention: what takes longer than asked for is refused before it begins") {
  const call::Record record = one_page(100000, 40);
  const attention::Plan plan = attention::make_plan(record);
  const attention::Extent extent = attention::extent_of(plan);
  const double needed = attention::core_seconds(extent, plan.dims, Precision::kDouble);
  const double in_quad = attention::core_seconds(extent, plan.dims, Precision::kQuad);
  CHECK(in_quad > needed);
  CHECK(attention::core_seconds(extent, plan.dims, Precision::kMulti) > in_quad);
  for (const double most : {0.0, needed / 2, std::nextafter(needed, 0.0)}) {
    const verdict::WorkLimited limited({.core_seconds = most});
    try {
      static_cast<void>(verdict::judgement(attention::slice(), record));
      FAIL("not refused");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUnsafe);
      CHECK_MESSAGE(error.expected().find("(--work)") != std::string::npos, error.what());
      CHECK_MESSAGE(error.actual().find("core-seconds in tier double") != std::string::npos,
                    error.what());
    }
  }
}

TEST_CASE("attention: a limit is announced, ends with its scope, and changes no verdict") {
  static double announced = 0.0;
  announced = 0.0;
  const call::Record record = one_page(64, 2);
  const attention::Plan plan = attention::make_plan(record);
  const double needed =
      attention::core_seconds(attention::extent_of(plan), plan.dims, Precision::kDouble);
  const verdict::Verdict usual = verdict::judgement(attention::slice(), record).report.verdict;
  CHECK(announced == 0.0);
  {
    const verdict::WorkLimited outer({.core_seconds = 0.0});
    {
      const verdict::WorkLimited limited(
          {.core_seconds = needed, .announce = [](double x) { announced = x; }});
      CHECK(verdict::judgement(attention::slice(), record).report.verdict == usual);
      CHECK(announced == needed);
    }
    CHECK_THROWS_AS(static_cast<void>(verdict::judgement(attention::slice(), record)), Error);
  }
  CHECK(verdict::judgement(attention::slice(), record).report.verdict == usual);
}
