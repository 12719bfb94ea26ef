// SPDX-License-Identifier: Apache-2.0
//
// An honest server that drafts and verifies: nothing is found, in whatever order its calls come,
// where the dump begins late, where calls are missing, and where rows are padding.
#include <doctest/doctest.h>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/record.hpp"
#include "tests/chain/speculative_server.hpp"

namespace {

using namespace goldenrule;
using testing::CacheUse;
using testing::number;
using testing::SpeculativeServer;

// Prompts, steps with any count, a shared prefix, pages that are used again, a preemption.
std::vector<chain::Call> conversation(const testing::SpeculativeOptions& options) {
  SpeculativeServer server(options);
  server.prompt(1, 0, 13);
  server.share(3, 2, 1);
  server.prompt(2, 1, 6);
  server.step({{1, 2}, {2, 4}, {3, 1}});
  server.step({{3, 3}, {1, 1}});
  server.step({{2, 1}, {1, 4}, {3, 2}});
  server.release(2);
  server.prompt(4, 3, 9);
  server.step({{4, 3}, {1, 2}});
  server.preempt(3, 15);
  server.step({{3, 4}, {4, 1}, {1, 1}});
  server.step({{1, 3}, {3, 1}, {4, 2}});
  return server.calls;
}

TEST_CASE("an honest server that drafts has no finding, whatever its caches look like") {
  for (const CacheUse use : {CacheUse::kTarget, CacheUse::kInCache, CacheUse::kDraft}) {
    for (const bool counted : {true, false}) {
      const bool csr = counted == (use == CacheUse::kTarget);
      CAPTURE(static_cast<int>(use));
      CAPTURE(counted);
      const testing::Judged judged =
          testing::judge(conversation({.use = use,
                                       .layout = csr ? call::KvLayout::kHnd : call::KvLayout::kNhd,
                                       .csr = csr,
                                       .counted = counted}),
                         {.only_chain = counted});
      for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
      CHECK(judged.findings.empty());
      CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
      CHECK(judged.summary.rows > 100);
      CHECK(judged.summary.rows_judged == judged.summary.rows);
      CHECK(judged.summary.acceptances == 16);
      // In the end nothing follows 3 of them, nor those of 2 and 3 before they are given up.
      CHECK(judged.summary.acceptances_followed == (counted ? 16 : 11));
      CHECK(judged.summary.requests == 4);
      CHECK(judged.summary.restarts == 1);
    }
  }
}

void expect_none(const std::vector<chain::Call>& calls, std::size_t more = 0) {
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  for (const chain::Finding& f : judged.findings) {
    if (judged.findings.size() > more) MESSAGE(f.call, " ", f.request, " ", f.text);
  }
  CHECK(judged.findings.size() == more);
}

TEST_CASE("the calls of a step come in any order that a server has") {
  for (const CacheUse use : {CacheUse::kTarget, CacheUse::kInCache, CacheUse::kDraft}) {
    for (const bool counted : {true, false}) {
      for (const std::size_t later : {0U, 1U}) {  // attention behind the states; a replay
        CAPTURE(static_cast<int>(use));
        CAPTURE(counted);
        CAPTURE(later);
        std::vector<chain::Call> calls = conversation({.use = use, .counted = counted});
        for (std::size_t i = 0; i + 2 < calls.size(); ++i) {
          if (calls[i + 2].record.op != call::Op::kDraftAcceptance) continue;
          std::swap(calls[i + later].record, calls[i + later + 1].record);
          i += 2;
        }
        expect_none(calls);
      }
    }
  }
}

TEST_CASE("caches and draft acceptances without a layer with states") {
  std::vector<chain::Call> calls = conversation({});
  std::erase_if(calls,
                [](const chain::Call& c) { return call::operation(c.record.op).has_states; });
  number(calls);
  expect_none(calls);
  const chain::Summary summary = testing::judge(calls, {.only_chain = true}).summary;
  CHECK(summary.verdict == verdict::Verdict::kWithinBudget);
  CHECK(summary.restarts == 1);
  CHECK(summary.rows_judged == summary.rows);
  CHECK(summary.acceptances_followed == 11);
}

TEST_CASE("requests that began before the dump, and calls that are missing") {
  for (const CacheUse use : {CacheUse::kTarget, CacheUse::kInCache, CacheUse::kDraft}) {
    for (const bool counted : {true, false}) {
      const std::vector<chain::Call> all = conversation({.use = use, .counted = counted});
      for (std::size_t n = 1; n + 1 < all.size(); ++n) {
        CAPTURE(static_cast<int>(use));
        CAPTURE(counted);
        CAPTURE(n);
        std::vector<chain::Call> calls(all.begin() + static_cast<std::ptrdiff_t>(n), all.end());
        expect_none(calls);
        if (call::operation(all[n].record.op).has_states) continue;  // whose tokens are missing
        calls = all;
        calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(n));
        expect_none(calls, 1);  // the gap
      }
    }
  }
}

TEST_CASE("a request that the dump knows takes over the prefix of another") {
  SpeculativeServer server({});
  server.prompt(3, 2, 9);
  server.prompt(2, 1, 6);
  server.step({{2, 4}, {3, 1}});
  server.release(3);
  server.prompt(1, 0, 13);
  server.share(3, 2, 1);
  server.step({{2, 2}, {3, 4}, {1, 1}});
  server.step({{1, 2}, {3, 1}});
  expect_none(server.calls);
  const chain::Summary summary = testing::judge(server.calls, {.only_chain = true}).summary;
  CHECK(summary.rows_judged == summary.rows);
}

TEST_CASE("rows of padding are nobody's") {
  SpeculativeServer server({});
  server.prompt(1, 0, 13);
  server.prompt(2, 1, 6);
  server.prompt(3, 2, 9);
  const auto pad = [](call::Record& r) {
    for (const std::int64_t row : {1, 2}) r.inputs.at("request_ids").set(row, -1.0);
  };
  server.on_attention = pad;
  server.on_acceptance = pad;
  server.step({{1, 2}, {2, 4}, {3, 1}});
  server.step({{1, 1}, {3, 2}, {2, 1}});
  expect_none(server.calls);
  CHECK(testing::judge(server.calls, {.only_chain = true}).summary.acceptances == 2);
}

TEST_CASE("caches that take more memory than is given are forgotten") {
  const testing::Judged judged =
      testing::judge(conversation({}), {.only_chain = true, .most_bytes = 1});
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.rows_judged < judged.summary.rows);
  const testing::Judged some =
      testing::judge(conversation({}), {.only_chain = true, .most_bytes = 600});
  CHECK(some.findings.empty());
  CHECK(some.summary.forgotten < judged.summary.forgotten);
}

}  // namespace
