// SPDX-License-Identifier: Apache-2.0
//
// What a draft acceptance commits beside what the server then does.
#include <doctest/doctest.h>

#include "fixtures/call/integer_inputs.hpp"
#include "tests/chain/speculative_server.hpp"

namespace {

using namespace goldenrule;
using chain::Mistake;
using testing::begun;
using testing::CacheUse;
using testing::first_of;
using testing::number;
using testing::only;
using testing::SpeculativeServer;

// The only finding: request 2 goes on with `went` tokens of the 3 that its draft acceptance
// commits.
chain::Finding expect_not_committed(const std::vector<chain::Call>& calls, std::int64_t went) {
  chain::Finding finding = only(calls);
  CAPTURE(finding.text);
  CHECK(finding.mistake == Mistake::kNotCommitted);
  CHECK(finding.request == 2);
  CHECK(finding.text ==
        "the draft acceptance commits 3 tokens of request 2, the server goes on with " +
            std::to_string(went));
  return finding;
}

TEST_CASE("counts of an MTP call are those that the draft acceptance commits") {
  SpeculativeServer server = begun(3);
  server.live[2].beyond = 1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  expect_not_committed(server.calls, 4);
}

TEST_CASE("counts of another row") {
  SpeculativeServer server = begun(3);
  server.live[1].beyond = 2;
  server.live[2].beyond = -1;
  server.live[3].beyond = -1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  CHECK(first_of(server.calls, 3).mistake == Mistake::kOtherRowsCount);
}

TEST_CASE("the layer with states goes on from another position") {
  SpeculativeServer server = begun(3, {.counted = false});
  server.live[2].beyond = -1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.live[2].beyond = 0;
  const auto at = std::ssize(server.calls);
  server.step({{1, 1}, {2, 2}, {3, 2}});
  CHECK(expect_not_committed(server.calls, 2).call == at + 1);
}

TEST_CASE("caches that went on with the counts of other rows") {
  SpeculativeServer server = begun(3);
  server.step({{1, 1}, {2, 3}, {3, 2}});
  const std::vector<std::int64_t> moved{2, -1, -1};
  for (std::int64_t id = 1; id <= 3; ++id) {
    server.live[id].length += moved[static_cast<std::size_t>(id - 1)];
  }
  server.step({{1, 1}, {2, 1}, {3, 1}});
  CHECK(first_of(server.calls, 3).mistake == Mistake::kOtherRowsCount);
}

TEST_CASE("a draft acceptance begins at the position of its request") {
  for (const double off : {1.0, -1.0}) {
    CAPTURE(off);
    SpeculativeServer server = begun(3);
    const auto at = std::ssize(server.calls);
    server.on_acceptance = [&](call::Record& r) {
      r.inputs.at("start").set(2, r.inputs.at("start")[2] + off);
    };
    server.step({{1, 1}, {2, 3}, {3, 2}});
    const chain::Finding finding = only(server.calls);
    CAPTURE(finding.text);
    CHECK(finding.mistake == Mistake::kWrongStart);
    CHECK(finding.call == at + 2);
    CHECK(finding.request == 3);
    CHECK(finding.text.find("expected 6") != std::string::npos);
  }
}

// One request, and two draft acceptances that may begin elsewhere.
std::vector<chain::Call> two_blocks(double first_off, double second_off) {
  SpeculativeServer server({});
  std::int64_t block = 0;
  server.on_acceptance = [&](call::Record& r) {
    const double off = block++ == 0 ? first_off : second_off;
    r.inputs.at("start").set(0, r.inputs.at("start")[0] + off);
  };
  server.prompt(1, 0, 10);
  server.step({{1, 2}});
  server.step({{1, 3}});
  return server.calls;
}

TEST_CASE(
    "without MTP calls a draft acceptance begins where the prompt or the one before it has ended") {
  const auto calls_of = [](double first_off, double second_off) {
    std::vector<chain::Call> calls = two_blocks(first_off, second_off);
    std::erase_if(calls, [](const chain::Call& c) { return c.record.mode == call::Mode::kMtp; });
    number(calls);
    return calls;
  };
  CHECK(testing::judge(calls_of(0, 0), {.only_chain = true}).findings.empty());
  const chain::Finding first = first_of(calls_of(1, 0), 3);
  CHECK(first.mistake == Mistake::kWrongStart);
  CHECK(first.text.find("begins at token 11, expected 10") != std::string::npos);
  const chain::Finding second = only(calls_of(0, 1));
  CHECK(second.mistake == Mistake::kWrongStart);
  CHECK(second.text.find("begins at token 13, expected 12") != std::string::npos);
}

TEST_CASE("without a layer with states a draft acceptance does not go back") {
  std::vector<chain::Call> calls = two_blocks(0, -1);
  std::erase_if(calls,
                [](const chain::Call& c) { return c.record.op != call::Op::kDraftAcceptance; });
  number(calls);
  const chain::Finding finding = only(calls);
  CHECK(finding.mistake == Mistake::kWrongStart);
  CHECK(finding.text.find("begins at token 11, expected 12") != std::string::npos);
  CHECK(testing::judge(calls, {.only_chain = true}).summary.requests == 1);
}

TEST_CASE("a draft acceptance that is made again, with other tokens, begins at the wrong one") {
  std::vector<chain::Call> calls = two_blocks(0, 0);
  chain::Call again = calls.back();
  again.index += 1;
  again.record.outputs["committed"].set(0, 2.0);
  calls.push_back(std::move(again));
  CHECK(only(calls).mistake == Mistake::kWrongStart);
}

TEST_CASE("the position of a draft acceptance is the token at which it begins") {
  std::vector<chain::Call> calls = two_blocks(0, 0);
  calls.back().record.inputs["positions"] = call::integer_tensor({12});
  CHECK(testing::judge(calls, {.only_chain = true}).findings.empty());
  calls.back().record.inputs["positions"] = call::integer_tensor({13});
  CHECK(only(calls).mistake == Mistake::kWrongStart);
}

TEST_CASE("a draft acceptance whose start and position are wrong alike begins at the wrong token") {
  SpeculativeServer server = begun(3);
  server.on_acceptance = [&](call::Record& r) {
    r.inputs.at("start").set(2, r.inputs.at("start")[2] + 1.0);
    r.inputs["positions"] = r.inputs.at("start");
  };
  server.step({{1, 1}, {2, 3}, {3, 2}});
  const chain::Finding finding = only(server.calls);
  CAPTURE(finding.text);
  CHECK(finding.mistake == Mistake::kWrongStart);
  CHECK(finding.request == 3);
}

TEST_CASE("accepted counts of a draft acceptance are those that it commits") {
  SpeculativeServer server = begun(3);
  call::Integers said{1, 3, 2};
  server.on_acceptance = [&](call::Record& r) {
    r.inputs["accepted_counts"] = call::integer_tensor(said);
  };
  server.step({{1, 1}, {2, 3}, {3, 2}});
  CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
  said[1] = 2;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  expect_not_committed(server.calls, 2);
}

// Keeps one output of each draft acceptance.
void strip(std::vector<chain::Call>& calls, const char* name) {
  for (chain::Call& call : calls) {
    if (call.record.op != call::Op::kDraftAcceptance) continue;
    const call::Tensor output = call.record.outputs.at(name);
    call.record.outputs.clear();
    call.record.outputs[name] = output;
  }
}

TEST_CASE("each output alone says what is committed, and what went on without it is said once") {
  for (const char* name : {"committed", "target_len", "keep", "tokens"}) {
    CAPTURE(name);
    SpeculativeServer server = begun(3, {.counted = false});
    server.live[1].beyond = 1;
    server.step({{1, 1}, {2, 3}, {3, 2}});
    server.live[1].length += 1;
    server.live[1].beyond = 0;
    const auto at = std::ssize(server.calls);
    server.step({{1, 1}, {2, 3}, {3, 2}});
    strip(server.calls, name);
    const chain::Finding finding = only(server.calls);
    CHECK(finding.mistake == Mistake::kNotCommitted);
    CHECK(finding.request == 1);
    CHECK(finding.call == at);
  }
}

TEST_CASE("tokens whose padding is a token of the vocabulary say nothing") {
  SpeculativeServer server = begun(3, {.counted = false});
  server.on_acceptance = [](call::Record& r) { r.convention.pad_token = 7; };
  server.live[1].beyond = 1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.live[1].length += 1;
  server.live[1].beyond = 0;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  strip(server.calls, "tokens");
  CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
}

TEST_CASE("without draft_len the draft's cache ends where draft_crop says") {
  for (const std::int64_t off : {0, 1}) {
    CAPTURE(off);
    SpeculativeServer server({.use = CacheUse::kDraft});
    server.on_acceptance = [](call::Record& r) {
      r.convention.draft_crop = call::DraftCrop::kStart;
    };
    server.prompt(1, 0, 10);
    server.prompt(2, 1, 7);
    server.step({{1, 2}, {2, 3}});
    server.step({{1, 1}, {2, 2}});
    server.live[2].length += off;
    server.step({{1, 3}, {2, 2}});
    for (chain::Call& call : server.calls) call.record.outputs.erase("draft_len");
    if (off == 0) {
      CHECK(testing::judge(server.calls, {.only_chain = true}).findings.empty());
    } else {
      CHECK(only(server.calls).mistake == Mistake::kWrongLength);
    }
  }
}

// Attention that says what stays of its call.
SpeculativeServer counting(const testing::SpeculativeOptions& options,
                           const std::vector<std::int64_t>& counts) {
  SpeculativeServer server = begun(3, options);
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.on_attention = [counts](call::Record& r) {
    r.inputs["accepted_counts"] = call::integer_tensor(counts);
  };
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.on_attention = {};
  return server;
}

TEST_CASE("counts of attention are those that the draft acceptance commits") {
  const testing::Judged right = testing::judge(counting({}, {1, 3, 2}).calls, {.only_chain = true});
  CHECK(right.findings.empty());
  // The draft's cache is cut to the start of the block.
  CHECK(testing::judge(counting({.use = CacheUse::kDraft}, {0, 0, 0}).calls, {.only_chain = true})
            .findings.empty());
  const chain::Finding one = only(counting({}, {1, 2, 2}).calls);
  CHECK(one.mistake == Mistake::kNotCommitted);
  CHECK(one.request == 2);
  CHECK(first_of(counting({}, {3, 2, 1}).calls, 3).mistake == Mistake::kOtherRowsCount);
}

TEST_CASE("without a draft acceptance the next length says what was kept") {
  SpeculativeServer server = begun(3);
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.step({{1, 4}, {2, 1}, {3, 1}});
  std::erase_if(server.calls,
                [](const chain::Call& c) { return c.record.op == call::Op::kDraftAcceptance; });
  number(server.calls);
  const testing::Judged judged = testing::judge(server.calls, {.only_chain = true});
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.rows_judged == judged.summary.rows);
  chain::Call& last = server.calls[server.calls.size() - 2];
  last.record.inputs["accepted_counts"] = call::integer_tensor({4, 1, 1});
  chain::Call& before = server.calls[server.calls.size() - 4];
  before.record.inputs["accepted_counts"] = call::integer_tensor({1, 2, 2});  // of 3
  const chain::Finding finding = only(server.calls);
  CHECK(finding.mistake == Mistake::kWrongLength);
  CHECK(finding.request == 2);
}

}  // namespace
