// SPDX-License-Identifier: Apache-2.0
//
// What a verification commits beside what the server then does.
#include <doctest/doctest.h>

#include "fixtures/call/integer_inputs.hpp"
#include "tests/chain/speculative_server.hpp"

namespace {

using namespace goldenrule;
using chain::Mistake;
using testing::CacheUse;
using testing::SpeculativeServer;

SpeculativeServer three_begun(const testing::SpeculativeOptions& options = {}) {
  SpeculativeServer server(options);
  server.prompt(1, 0, 10);
  server.prompt(2, 1, 7);
  server.prompt(3, 2, 5);
  server.step({{1, 2}, {2, 3}, {3, 1}});
  return server;
}

chain::Finding first_of(const std::vector<chain::Call>& calls, std::size_t findings) {
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  REQUIRE(judged.findings.size() == findings);
  CHECK(judged.findings[0].check == chain::Check::kContinuity);
  return judged.findings[0];
}
chain::Finding only(const std::vector<chain::Call>& calls) { return first_of(calls, 1); }

TEST_CASE("counts of an MTP call are those that the verification commits") {
  SpeculativeServer server = three_begun();
  server.live[2].beyond = 1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  const chain::Finding finding = only(server.calls);
  CAPTURE(finding.text);
  CHECK(finding.mistake == Mistake::kNotCommitted);
  CHECK(finding.request == 2);
  CHECK(finding.text ==
        "the verification commits 3 tokens of request 2, the server goes on with 4");
}

TEST_CASE("counts of another row") {
  SpeculativeServer server = three_begun();
  server.live[1].beyond = 2;
  server.live[2].beyond = -1;
  server.live[3].beyond = -1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  CHECK(first_of(server.calls, 3).mistake == Mistake::kOtherRowsCount);
}

TEST_CASE("the layer with states goes on from another position") {
  SpeculativeServer server = three_begun({.counted = false});
  server.live[2].beyond = -1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.live[2].beyond = 0;
  const auto at = std::ssize(server.calls);
  server.step({{1, 1}, {2, 2}, {3, 2}});
  const chain::Finding finding = only(server.calls);
  CHECK(finding.mistake == Mistake::kNotCommitted);
  CHECK(finding.call == at + 1);
  CHECK(finding.request == 2);
  CHECK(finding.text ==
        "the verification commits 3 tokens of request 2, the server goes on with 2");
}

TEST_CASE("caches that went on with the counts of other rows") {
  SpeculativeServer server = three_begun();
  server.step({{1, 1}, {2, 3}, {3, 2}});
  const std::vector<std::int64_t> moved{2, -1, -1};
  for (std::int64_t id = 1; id <= 3; ++id) {
    server.live[id].length += moved[static_cast<std::size_t>(id - 1)];
  }
  server.step({{1, 1}, {2, 1}, {3, 1}});
  CHECK(first_of(server.calls, 3).mistake == Mistake::kOtherRowsCount);
}

TEST_CASE("a verification begins at the position of its request") {
  for (const double off : {1.0, -1.0}) {
    CAPTURE(off);
    SpeculativeServer server = three_begun();
    const auto at = std::ssize(server.calls);
    server.on_verify = [&](call::Record& r) {
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

TEST_CASE("tokens alone say what is committed, and what went on without them is said once") {
  SpeculativeServer server = three_begun({.counted = false});
  server.live[1].beyond = 1;
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.live[1].length += 1;
  server.live[1].beyond = 0;
  const auto at = std::ssize(server.calls);
  server.step({{1, 1}, {2, 3}, {3, 2}});
  for (chain::Call& call : server.calls) {
    if (call.record.op != call::Op::kVerify) continue;
    const call::Tensor tokens = call.record.outputs.at("tokens");
    call.record.outputs.clear();
    call.record.outputs["tokens"] = tokens;
  }
  const chain::Finding finding = only(server.calls);
  CHECK(finding.mistake == Mistake::kNotCommitted);
  CHECK(finding.request == 1);
  CHECK(finding.call == at);
}

TEST_CASE("without a verification the next length says what was kept") {
  SpeculativeServer server = three_begun();
  server.step({{1, 1}, {2, 3}, {3, 2}});
  server.step({{1, 4}, {2, 1}, {3, 1}});
  std::erase_if(server.calls,
                [](const chain::Call& c) { return c.record.op == call::Op::kVerify; });
  std::int64_t index = 0;
  for (chain::Call& call : server.calls) call.index = index++;
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
