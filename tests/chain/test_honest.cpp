// SPDX-License-Identifier: Apache-2.0
//
// Chains of an honest server: nothing is found, and every stored state is judged.
#include <doctest/doctest.h>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using testing::Server;

// Prefill in chunks, decode, MTP call with 0 to T accepted, a pad row, a slot that is used again,
// preemption with a second prefill into another slot, a prefix that a new request takes over.
std::vector<chain::Call> conversation(Server& server) {
  std::vector<chain::Call> calls;
  const auto serve = [&](Mode mode, const std::vector<testing::ServedRow>& rows) {
    calls.push_back(server.serve(mode, rows));
  };
  serve(Mode::kPrefill, {{.request = 10, .slot = 1, .tokens = 20, .fresh = true},
                         {.request = 11, .slot = 4, .tokens = 9, .fresh = true}});
  const std::vector<double> prefix = server.left("checkpoints", 1);  // request 10, 16 tokens
  serve(Mode::kPrefill, {{.request = 11, .slot = 4, .tokens = 7},
                         {.request = 12, .slot = 0, .tokens = 3, .fresh = true}});
  serve(Mode::kDecode, {{.request = 11, .slot = 4},
                        {.request = -1, .slot = -1},
                        {.request = 10, .slot = 1},
                        {.request = 12, .slot = 0}});
  for (const std::int64_t accepted : {2, 0, 4, 1, 3}) {
    serve(Mode::kMtp, {{.request = 10, .slot = 1, .accepted = accepted},
                       {.request = -1, .slot = -1},
                       {.request = 12, .slot = 0, .accepted = 4 - accepted}});
  }
  serve(Mode::kDecode, {{.request = 12, .slot = 0}, {.request = 10, .slot = 1}});
  server.put(3, prefix);
  server.positions[14] = 16;
  serve(Mode::kPrefill, {{.request = 14, .slot = 3, .tokens = 4, .restored_from = 10}});
  serve(Mode::kPrefill, {{.request = 13, .slot = 1, .tokens = 5, .fresh = true},
                         {.request = 10, .slot = 2, .tokens = 26, .fresh = true}});
  serve(Mode::kDecode,
        {{.request = 14, .slot = 3}, {.request = 13, .slot = 1}, {.request = 10, .slot = 2}});
  return calls;
}

TEST_CASE("honest chains have no finding, of every operation and pool") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
      for (const std::uint64_t seed : {1U, 2U}) {
        CAPTURE(call::name_of(op));
        CAPTURE(call::info(pool).name);
        CAPTURE(seed);
        Server server({.op = op, .pool = pool, .seed = seed});
        const testing::Judged judged = testing::judge(conversation(server));
        for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
        CHECK(judged.findings.empty());
        CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
        CHECK(judged.summary.judged == judged.summary.states);
        CHECK(judged.summary.requests == 5);
        CHECK(judged.summary.slots_compared > 0);
        CHECK(judged.summary.forgotten == 0);
      }
    }
  }
}

namespace {

// 200 calls of one request, of which every 50th has its states: the ledger alone leads from one to
// the next.
testing::Judged long_chain(const testing::ServerOptions& options) {
  Server server(options);
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 2, .tokens = 8, .fresh = true}}));
  for (int i = 0; i < 200; ++i) {
    calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 2}}));
    if (i % 50 != 49) calls.back() = testing::without_states(std::move(calls.back()));
  }
  return testing::judge(calls, {.only_chain = true});
}

}  // namespace

TEST_CASE("a long chain keeps its budget and says something") {
  const testing::Judged judged = long_chain({.pool = call::DType::kBF16, .seed = 3});
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.vacuous == 0);
  CHECK(judged.summary.states == 2 * 201);
  CHECK(judged.summary.judged == 2 * 5);
  CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
}

// The pool rounds the same state the same way at every call: what it loses adds up, up to half an
// ulp over 1 - alpha, and with seven deviations of that a bf16 pool is granted as much as it holds.
TEST_CASE("a chain of the same token over and over is not refused") {
  for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
    for (const double decay : {-1e-2, -1e-3}) {
      CAPTURE(pool);
      CAPTURE(decay);
      const testing::Judged judged = long_chain({.pool = pool,
                                                 .seed = 3,
                                                 .fastest_decay = decay,
                                                 .slowest_decay = decay,
                                                 .repeats = true});
      for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
      CHECK(judged.findings.empty());
      CHECK(judged.summary.judged == 2 * 5);
      CHECK(judged.summary.verdict == (pool == call::DType::kF32 ? verdict::Verdict::kWithinBudget
                                                                 : verdict::Verdict::kMistrusted));
    }
  }
}

TEST_CASE("a second slot, and a buffer of intermediate states that one row does without") {
  Server server({.seed = 5});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 2, .tokens = 8, .fresh = true},
                                    {.request = 2, .slot = 0, .tokens = 3, .fresh = true}}));
  for (int i = 0; i < 3; ++i) {
    calls.push_back(server.serve(Mode::kMtp, {{.request = 1, .slot = 2, .accepted = 3},
                                              {.request = 2, .slot = 0, .accepted = 1}}));
    call::Record& r = calls.back().record;
    r.inputs["checkpoint_state_indices"] = call::integer_tensor({5, -1});
    r.inputs["checkpoint_tokens"] = call::integer_tensor({2, 0});
    r.inputs["initial_intermediate_states"] =
        call::Tensor(call::DType::kF32, {3, Server::kDrafts, Server::kHV, Server::kV, Server::kK});
    r.inputs["intermediate_state_indices"] = call::integer_tensor({2, -1});
    r.outputs.clear();
    const contract::Contract& contract = delta::slice().default_contract(r);
    r.outputs = calls::stored(r, contract, delta::slice().emulate(r, contract, 9));
    if (i == 1) calls.back() = testing::without_states(std::move(calls.back()));
  }
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.judged == 2 * 2 * 3);
}

TEST_CASE("without any stored state nothing is judged, and nothing passes") {
  Server server({});
  std::vector<chain::Call> calls;
  calls.push_back(testing::without_states(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 2, .tokens = 8, .fresh = true}})));
  const testing::Judged judged = testing::judge(calls);
  CHECK(judged.summary.verdict == verdict::Verdict::kSkipped);
  CHECK(judged.summary.judged == 0);
  CHECK(testing::judge({}).summary.verdict == verdict::Verdict::kSkipped);
}

TEST_CASE("rows of a packed MTP call have their own numbers of tokens") {
  Server server({.seed = 21, .packed = true});
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  for (const std::int64_t first : {1, 3, 4}) {  // its tokens and those of the other, all accepted
    const std::int64_t second = 5 - first;
    calls.push_back(server.serve(
        Mode::kMtp, {{.request = 1, .slot = 3, .tokens = first, .accepted = first},
                     {.request = 2, .slot = 0, .tokens = second, .accepted = second}}));
  }
  const testing::Judged judged = testing::judge(calls);
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.tokens == 14 + 3 * 5);
  CHECK(judged.summary.judged == judged.summary.states);
  // Without counts and without final states the next position says how many were kept.
  for (chain::Call& call : calls) {
    call.record.inputs.erase("accepted_counts");
    if (call.record.mode != Mode::kMtp) continue;
    call.record.inputs.erase("accepted_tokens");
    call.record.outputs.erase("final_state");
    call.record.convention.disable_state_update = 1;
  }
  CHECK(testing::judge(calls).findings.empty());
  calls.back().record.inputs.at("positions").set(1, 13.0);  // 5 + 4 + 2 are there at most
  CHECK(testing::judge(calls).summary.verdict == verdict::Verdict::kError);
}

TEST_CASE("requests that began before the chain are judged from their first stored state") {
  Server server({.seed = 4});
  server.positions[7] = 100;
  std::vector<chain::Call> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(server.serve(Mode::kDecode, {{.request = 7, .slot = 2}}));
  }
  const testing::Judged judged = testing::judge(calls);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.taken == 1);
  CHECK(judged.summary.judged == 5);  // all but the start state that is taken for right
}

}  // namespace
