// SPDX-License-Identifier: Apache-2.0
//
// Chains that contradict themselves: each is said with call, request and slot, nothing of it is a
// pass, and what can still be judged is judged.
#include <doctest/doctest.h>

#include <string>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/suites/slices.hpp"
#include "tests/chain/expect_input.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using testing::Server;

std::vector<chain::Call> good_chain(std::uint64_t seed) {
  Server server({.seed = seed});
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  for (int i = 0; i < 4; ++i) {
    calls.push_back(server.serve(Mode::kMtp, {{.request = 1, .slot = 3, .accepted = 2},
                                              {.request = 2, .slot = 0, .accepted = i}}));
  }
  return calls;
}

TEST_CASE("a gap is said, and requests whose tokens are lost with it") {
  std::vector<chain::Call> calls = good_chain(1);
  calls.erase(calls.begin() + 2);
  const testing::Judged judged = testing::judge(calls);
  expect_input(judged, 3, "a gap: expected call 2");
  REQUIRE(judged.findings.size() == 3);  // both requests went on in the call that is missing
  CHECK(judged.findings[1].request == 1);
  CHECK(judged.findings[1].slot == 3);
  CHECK(judged.findings[1].text.find("position 11 after call 1") != std::string::npos);
  CHECK(judged.findings[1].mistake == chain::Mistake::kNone);  // of the server
  CHECK(judged.findings[2].request == 2);
  CHECK(judged.summary.judged > 4);
}

TEST_CASE("calls out of order and of another chain are left out") {
  std::vector<chain::Call> calls = good_chain(2);
  calls.push_back(calls[1]);
  expect_input(testing::judge(calls), 1, "out of order: expected call 5");
  calls.back() = calls[4];
  calls.back().index = 5;
  calls.back().chain = "another";
  expect_input(testing::judge(calls), 5, "expected a call of chain 'test'");
}

TEST_CASE("positions that disagree with what was seen") {
  std::vector<chain::Call> calls = good_chain(3);
  calls[2].record.inputs.at("positions").set(0, 12.0);
  const testing::Judged judged = testing::judge(calls);
  expect_input(judged, 2, "the request is at position 11 after call 1, and this call says 12");
  CHECK(judged.findings[0].request == 1);
  CHECK(judged.findings[0].mistake == chain::Mistake::kCountsContradicted);
  calls[2].record.inputs.at("positions").set(0, 15.0);  // beyond the tokens of that call
  CHECK(testing::judge(calls).findings[0].mistake == chain::Mistake::kTokensMissing);
  calls[2].record.inputs.at("positions").set(0, 8.0);
  CHECK(testing::judge(calls).findings[0].mistake == chain::Mistake::kNone);
}

TEST_CASE("requests that share a slot at once") {
  std::vector<chain::Call> calls = good_chain(4);
  calls[2].record.inputs.at("state_indices").set(1, 3.0);
  const testing::Judged judged = testing::judge(calls);
  expect_input(judged, 2, "requests 1 and 2 share the slot");
  CHECK(judged.findings[0].slot == 3);
}

// No kernel reads such a row, so its o is nobody's.
TEST_CASE("a request on the slot of padding is said") {
  std::vector<chain::Call> calls = good_chain(9);
  calls.back() = testing::without_states(std::move(calls.back()));
  call::Record& last = calls.back().record;
  last.inputs.at("state_indices").set(1, static_cast<double>(last.convention.pad_slot));
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  expect_input(judged, 4, "the slot of padding");
  CHECK(judged.findings[0].request == 2);
  last.inputs.at("request_ids").set(1, -1.0);
  CHECK(testing::judge(calls, {.only_chain = true}).findings.empty());
}

TEST_CASE("a call that is no pass by itself is named, with the reason") {
  Server server({.seed = 14});
  std::vector<chain::Call> calls{server.serve_prompts()};
  call::Record& record = calls[0].record;
  for (const char* name : {"q", "o"}) {
    call::Tensor& x = name[0] == 'q' ? record.inputs.at(name) : record.outputs.at(name);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0.0);
  }
  const testing::Judged judged = testing::judge(calls);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.verdict == verdict::Verdict::kMistrusted);
  CHECK(judged.summary.mistrusted == 1);
  CHECK(judged.summary.reason.find("first call 0, o: ") != std::string::npos);
}

TEST_CASE("accepted counts that are missing are read off the next position, or said") {
  std::vector<chain::Call> calls = good_chain(5);
  for (chain::Call& call : calls) {
    if (call.record.mode != Mode::kMtp) continue;
    call.record.inputs.erase("accepted_counts");
    call.record.inputs.erase("accepted_tokens");
    call.record.outputs.erase("final_state");
    call.record.convention.disable_state_update = 1;
  }
  CHECK(testing::judge(calls).findings.empty());
  for (chain::Call& call : calls) call.record.inputs.erase("positions");
  expect_input(testing::judge(calls), 2, "nothing says how many tokens of call 1 were kept");
}

TEST_CASE("a count that no call can have is said where no state is stored, too") {
  for (const double count : {-1.0, 1e6, 9007199254740992.0}) {
    std::vector<chain::Call> calls = good_chain(8);
    calls[2] = testing::without_states(std::move(calls[2]));
    calls[2].record.inputs.erase("accepted_counts");
    calls[2].record.inputs["accepted_tokens"] =
        call::Tensor(call::DType::kI64, {2}, std::vector<double>{count, 1.0});
    expect_input(testing::judge(calls), 2, "accepted_tokens[0]");
  }
}

TEST_CASE("mixed shapes, ids of two rows and calls without ids") {
  std::vector<chain::Call> calls = good_chain(6);
  std::vector<chain::Call> changed = calls;
  changed[2].record.convention.state_layout = call::StateLayout::kKV;
  expect_input(testing::judge(changed), 2, "state_layout");
  // What the judge leaves out is no mistake of the server.
  for (const chain::Finding& finding : testing::judge(changed).findings) {
    CHECK(finding.mistake == chain::Mistake::kNone);
  }
  changed = calls;
  changed[2].record.inputs.at("request_ids").set(1, 1.0);
  expect_input(testing::judge(changed), 2, "one row for each request");
  changed = calls;
  call::erase_chain_inputs(changed[2].record);
  expect_input(testing::judge(changed), 2, "/inputs/request_ids");
}

TEST_CASE("what rests beyond the limit of memory is forgotten and counted") {
  std::vector<chain::Call> calls = good_chain(7);
  const testing::Judged judged = testing::judge(calls, {.most_bytes = 1});
  CHECK(judged.findings.empty());
  CHECK(judged.summary.forgotten > 0);
}

TEST_CASE("calls of new requests cost the same, however many have been") {
  Server server({.seed = 13});
  chain::Judge judge(suites::slice_of, {.only_chain = true, .most_bytes = 1 << 20});
  chain::Call call =
      server.serve(Mode::kPrefill, {{.request = 0, .slot = 3, .tokens = 1, .fresh = true}});
  for (std::int64_t n = 0; n < 2000; ++n) {
    call.index = n;
    call.record.inputs.at("request_ids").set(0, static_cast<double>(n));
    CHECK(judge.add(call).empty());
  }
  CHECK(judge.finish().forgotten > 1000);
}

// The slots of a row stand in a row of ssm_state_indices, however many tokens the row has.
TEST_CASE("packed rows with a slot for each token are no padding") {
  chain::Call call{.chain = "test", .index = 0, .record = {}};
  call.record = cases::make_record(
      cases::parse("op=gdn mode=mtp lens=3,0,1,8,5 H=1 HV=2 K=16 V=16 slots=scatter"));
  const std::int64_t rows = call::validate(call.record).rows;
  call.record.inputs["request_ids"] = call::integer_tensor(call::all_indices(rows));
  const testing::Judged judged = testing::judge({call}, {.only_chain = true});
  CHECK(judged.findings.empty());
  CHECK(judged.summary.states == 2 * rows);
  CHECK(judged.summary.taken == rows);
}

}  // namespace
