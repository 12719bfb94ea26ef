// SPDX-License-Identifier: Apache-2.0
//
// Caches of a server that drafts and verifies, which errs: each mistake is said where it happens,
// with its name.
#include <doctest/doctest.h>

#include <algorithm>

#include "fixtures/call/integer_inputs.hpp"
#include "tests/chain/speculative_server.hpp"

namespace {

using namespace goldenrule;
using chain::Mistake;
using testing::begun;
using testing::CacheUse;
using testing::SpeculativeServer;

void expect(const std::vector<chain::Call>& calls, Mistake mistake, std::int64_t request,
            const std::string& words) {
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  REQUIRE(judged.findings.size() == 1);
  const chain::Finding& finding = judged.findings[0];
  CAPTURE(finding.text);
  CHECK(finding.check == chain::Check::kContinuity);
  CHECK(finding.mistake == mistake);
  CHECK(finding.request == request);
  CHECK(finding.text.find(words) != std::string::npos);
  CHECK(judged.summary.verdict == verdict::Verdict::kOutOfBudget);
}

TEST_CASE("a page of another request") {
  for (const CacheUse use : {CacheUse::kTarget, CacheUse::kInCache, CacheUse::kDraft}) {
    SpeculativeServer server = begun(2, {.use = use});
    const std::int64_t page = server.live[1].pages[0];
    server.live[1].pages[0] = server.live[2].pages[0];
    server.step({{1, 1}, {2, 1}});
    server.live[1].pages[0] = page;
    expect(server.calls, Mistake::kOtherPage, 1, "(4 of");
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    CHECK(judged.findings.size() == 1);
    CHECK(judged.findings[0].page == server.live[2].pages[0]);
    CHECK(judged.findings[0].position == 0);
    CHECK(judged.findings[0].slot == 0);
  }
}

TEST_CASE("a table that is wrong once is said once, and a row that is lost is said once") {
  SUBCASE("a table") {
    SpeculativeServer server = begun(2);
    std::swap(server.live[1].pages[0], server.live[2].pages[0]);
    server.step({{1, 1}, {2, 1}});
    std::swap(server.live[1].pages[0], server.live[2].pages[0]);
    for (int i = 0; i < 2; ++i) server.step({{1, 1}, {2, 1}});
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    REQUIRE(judged.findings.size() == 2);
    for (const chain::Finding& finding : judged.findings) {
      CHECK(finding.mistake == Mistake::kOtherPage);
      CHECK(finding.call == judged.findings[0].call);
    }
  }
  SUBCASE("a row") {
    SpeculativeServer server = begun(2);
    server.live[1].pages[0] = server.live[2].pages[0];
    for (int i = 0; i < 3; ++i) server.step({{1, 1}, {2, 1}});
    expect(server.calls, Mistake::kOtherPage, 1, "(4 of");
  }
}

TEST_CASE("rows that were written one place further") {
  SpeculativeServer server = begun(2);
  server.live[1].shift = 1;
  server.step({{1, 4}, {2, 1}});
  server.live[1].shift = 0;
  server.step({{1, 1}, {2, 1}});
  expect(server.calls, Mistake::kOtherPosition, 1, "it is row 12 of request 1");
}

TEST_CASE("rows that were not written") {
  SUBCASE("into places that held something else") {
    SpeculativeServer server({});
    server.prompt(1, 0, 10);
    server.live[2].writes = false;
    server.prompt(2, 1, 7);
    server.live[2].writes = true;
    server.step({{1, 2}, {2, 3}});  // their pools show what was there
    server.live[1].writes = false;
    server.step({{1, 4}, {2, 1}});
    server.live[1].writes = true;
    server.step({{1, 1}, {2, 1}});
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    REQUIRE(judged.findings.size() == 2);
    CHECK(judged.findings[0].request == 2);
    CHECK(judged.findings[0].mistake == Mistake::kNone);  // nobody knows what that is
    CHECK(judged.findings[1].request == 1);
    CHECK(judged.findings[1].mistake == Mistake::kRowNotWritten);
  }
  SUBCASE("into pages that another request has used") {
    SpeculativeServer server = begun(2);
    server.release(2);
    server.live[1].writes = false;
    for (int i = 0; i < 6; ++i) server.step({{1, 4}});
    server.live[1].writes = true;
    const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
    bool named = false;
    for (const chain::Finding& f : judged.findings) named |= f.mistake == Mistake::kRowNotWritten;
    CHECK(judged.findings.size() == 5);
    CHECK(named);
  }
}

TEST_CASE("the row of a rejected draft stays where the next one was to be") {
  SpeculativeServer server = begun(2);
  server.live[1].writes = false;
  server.step({{1, 2}, {2, 1}});
  server.live[1].writes = true;
  server.step({{1, 1}, {2, 1}});
  expect(server.calls, Mistake::kRejectedRow, 1, "row 12 of the cache");
}

TEST_CASE("a cache that is not cut to what was kept") {
  for (const std::int64_t off : {1, -1}) {
    for (const CacheUse use : {CacheUse::kTarget, CacheUse::kDraft, CacheUse::kInCache}) {
      CAPTURE(off);
      CAPTURE(static_cast<int>(use));
      SpeculativeServer server = begun(2, {.use = use});
      server.step({{1, 1}, {2, 2}});
      server.step({{1, 2}, {2, 2}});
      const std::int64_t length = server.live[2].length + off;
      server.live[2].length = length;
      if (use == CacheUse::kTarget) {
        server.on_attention = [&](call::Record& r) {
          r.inputs.at("positions").set(1, static_cast<double>(length - off));
        };
      }
      server.step({{1, 3}, {2, 2}});
      const std::string words = "the cache of request 2 has " + std::to_string(length) +
                                " tokens, expected " + std::to_string(length - off);
      if (use == CacheUse::kInCache) {
        expect(server.calls, Mistake::kNotCommitted, 2, "commits 2 tokens of request 2, the");
      } else {
        expect(server.calls, Mistake::kWrongLength, 2, words);
        expect(server.calls, Mistake::kWrongLength, 2,
               off > 0 ? "a rejected draft stays" : "tokens that were kept are gone");
      }
    }
  }
}

// Of request 1 row 10 alone is compared: its first query sees the key in front of it.
TEST_CASE("the row of a draft of another request that was rejected") {
  SpeculativeServer server({});
  server.prompt(1, 0, 9);
  server.prompt(2, 1, 7);
  server.step({{1, 2}, {2, 3}});  // request 2 keeps rows 0 to 9, and 10 is rejected
  server.on_attention = [](call::Record& r) { r.convention.window_left = 1; };
  server.live[1].pages[2] = server.live[2].pages[2];
  server.step({{1, 1}, {2, 1}});
  expect(server.calls, Mistake::kOtherPage, 1, "it is row 10 of request 2");
}

TEST_CASE("rows that another request of the same call writes") {
  SpeculativeServer server = begun(2, {.use = CacheUse::kInCache});
  server.live[2].pages[2] = server.live[1].pages[0];  // where its rows 10 and 11 come
  server.live[2].length = 8;
  server.on_attention = [](call::Record& r) { r.inputs.erase("positions"); };
  server.step({{1, 1}, {2, 1}});
  const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
  const auto of_first = std::ranges::find(judged.findings, 1, &chain::Finding::request);
  REQUIRE(of_first != judged.findings.end());
  CAPTURE(of_first->text);
  CHECK(of_first->mistake == Mistake::kOverwritten);
  CHECK(of_first->text.find("it is row 8 of request 2") != std::string::npos);
}

TEST_CASE("a prefix is shared one page too far") {
  SpeculativeServer server({});
  server.prompt(1, 0, 14);
  server.live[3].pages = {server.live[1].pages.begin(), server.live[1].pages.begin() + 3};
  server.live[3].writes = false;  // what is cached need not be written
  server.share(3, 2, 1);
  server.live[3].writes = true;
  server.step({{1, 1}, {3, 1}});
  expect(server.calls, Mistake::kOtherPage, 3, "it is row 8 of request 1");
}

TEST_CASE("two requests are given the same page") {
  SpeculativeServer server = begun(2);
  server.live[4].pages = {server.live[1].pages[0]};
  server.prompt(4, 3, 4);
  server.step({{1, 1}, {2, 1}});
  expect(server.calls, Mistake::kOverwritten, 1, "of request 4, which was written over it");
}

TEST_CASE("what a prompt brings is rounded once to the type of the cache") {
  SpeculativeServer server({});
  server.on_attention = [](call::Record& r) {
    for (const char* name : {"k", "v"}) {
      call::Tensor wide(call::DType::kF32, r.inputs.at(name).shape());
      for (std::int64_t i = 0; i < wide.size(); ++i) wide.set(i, r.inputs.at(name)[i] * 1.0001);
      r.inputs[name] = wide;
    }
  };
  server.prompt(1, 0, 10);
  server.step({{1, 2}});
  server.prompt(2, 1, 7);
  server.step({{1, 1}, {2, 4}});
  server.step({{1, 1}, {2, 4}});
  const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
  CHECK(judged.findings.empty());
  // Of the first prompt nobody knew the type.
  CHECK(judged.summary.rows - judged.summary.rows_judged == 10);
}

TEST_CASE("what stands where a window ends may be anything") {
  SpeculativeServer server = begun(2);
  server.on_attention = [&](call::Record& r) {
    r.convention.window_left = 3;
    r.inputs["valid_q"] = call::integer_tensor({3, 4});  // a padded query sees nothing
    r.inputs.at("page_table").set(0, static_cast<double>(server.live[2].pages[0]));
  };
  server.step({{1, 1}, {2, 1}});
  CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
}

TEST_CASE("rows of zeros have no name, and those that are the same again are right") {
  SpeculativeServer server({});
  server.on_attention = [](call::Record& r) {
    for (const char* name : {"k", "v", "k_cache", "v_cache"}) {
      if (r.inputs.contains(name)) {
        r.inputs[name] = call::Tensor(call::DType::kBF16, r.inputs.at(name).shape());
      }
    }
  };
  server.prompt(1, 0, 10);
  server.prompt(2, 1, 7);
  server.step({{1, 2}, {2, 3}});
  server.step({{1, 1}, {2, 4}});
  CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
}

TEST_CASE("a prefix is shared one page too far, where its request goes on") {
  SpeculativeServer server({});
  server.prompt(1, 0, 14);
  server.share(3, 2, 1);
  server.live[3].pages.push_back(server.live[1].pages[3]);
  server.live[3].writes = false;
  server.step({{1, 1}, {3, 2}});
  server.live[3].writes = true;
  server.step({{1, 1}, {3, 1}});
  expect(server.calls, Mistake::kOtherPage, 3, "it is row 12 of request 1");
}

}  // namespace
