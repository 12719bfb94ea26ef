// SPDX-License-Identifier: Apache-2.0
//
// Each mistake of a server, planted once into the pool between two calls, is found at its call,
// with its request and slot, and named.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "fixtures/call/dtype.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using chain::Mistake;
using testing::Server;

constexpr std::int64_t kCall = 4;  // at which the mistake shows

struct Planted {
  const char* what;
  Mistake mistake;
  Check check;
  Mode last, next;  // modes of the calls before and after the mistake
  std::function<void(Server&, const std::vector<double>& before)> plant;
};

const std::vector<Planted>& planted() {
  static const std::vector<Planted> all{
      {"a plain decode starts from row 0 of the MTP call", Mistake::kWrongColumn,
       Check::kContinuity, Mode::kMtp, Mode::kDecode,
       [](Server& s, const auto&) {
         s.put(1, s.left("intermediate_states", 0));
         s.put(2, s.left("intermediate_states", Server::kDrafts));
       }},
      {"accepted counts of the other row", Mistake::kOtherRowsCount, Check::kContinuity, Mode::kMtp,
       Mode::kMtp,
       [](Server& s, const auto&) {  // accepted 3 and 2
         s.put(1, s.left("intermediate_states", 1));
         s.put(2, s.left("intermediate_states", Server::kDrafts + 2));
       }},
      {"rolled back by one too many", Mistake::kWrongRollback, Check::kContinuity, Mode::kMtp,
       Mode::kMtp,
       [](Server& s, const auto&) {
         s.put(1, s.left("intermediate_states", 1));
         s.put(2, s.left("intermediate_states", Server::kDrafts));
       }},
      {"a state that was never written", Mistake::kNotWritten, Check::kContinuity, Mode::kDecode,
       Mode::kDecode, [](Server& s, const auto& before) { s.put(1, before); }},
      {"a slot that is still zero", Mistake::kNotWritten, Check::kContinuity, Mode::kDecode,
       Mode::kDecode,
       [](Server& s, const auto&) { s.put(1, std::vector<double>(s.state(1).size(), 0.0)); }},
      {"the state of another request", Mistake::kOtherRequest, Check::kContinuity, Mode::kDecode,
       Mode::kDecode, [](Server& s, const auto&) { s.put(1, s.state(2)); }},
      {"a checkpoint of 8 tokens where 12 are wanted", Mistake::kOffBoundary, Check::kContinuity,
       Mode::kPrefill, Mode::kDecode,
       [](Server& s, const auto&) { s.put(1, s.left("checkpoints", 0)); }},
      {"a copy through bf16", Mistake::kNarrowed, Check::kContinuity, Mode::kDecode, Mode::kDecode,
       [](Server& s, const auto&) {
         std::vector<double> state = s.state(1);
         for (double& x : state) x = call::round_to(call::DType::kBF16, x);
         s.put(1, state);
       }},
      {"a state that is none of those", Mistake::kNone, Check::kContinuity, Mode::kDecode,
       Mode::kDecode,
       [](Server& s, const auto&) {
         std::vector<double> state = s.state(1);
         state[5] += 0.25;
         s.put(1, state);
       }},
  };
  return all;
}

// Two requests, prefilled, decoded, served once in mode `last`; then the mistake, and `next`.
std::vector<chain::Call> chain_with(const Planted& mistake, const testing::ServerOptions& options) {
  Server server(options);
  std::vector<chain::Call> calls;
  const auto serve = [&](Mode mode, std::int64_t tokens, bool fresh) {
    calls.push_back(server.serve(
        mode, {{.request = 21, .slot = 1, .tokens = tokens, .accepted = 3, .fresh = fresh},
               {.request = 22, .slot = 2, .tokens = tokens + 1, .accepted = 2, .fresh = fresh}}));
  };
  serve(Mode::kPrefill, 9, true);
  serve(Mode::kDecode, 1, false);
  serve(Mode::kDecode, 1, false);
  const std::vector<double> before = server.state(1);
  serve(mistake.last, 12, false);
  mistake.plant(server, before);
  serve(mistake.next, 1, false);
  serve(Mode::kDecode, 1, false);
  return calls;
}

TEST_CASE("mistakes between two calls are named, with call, request and slot") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const Planted& mistake : planted()) {
      CAPTURE(std::string(call::name_of(op)));
      CAPTURE(std::string(mistake.what));
      const testing::Judged judged = testing::judge(chain_with(mistake, {.op = op, .seed = 5}));
      REQUIRE(judged.summary.first);
      const chain::Finding& first = *judged.summary.first;
      CAPTURE(first.text);
      CHECK(call::name_of(first.mistake) == call::name_of(mistake.mistake));
      CHECK(first.check == mistake.check);
      CHECK(first.call == kCall);
      CHECK(first.request == 21);
      CHECK(first.slot == 1);
      CHECK(first.verdict == verdict::Verdict::kOutOfBudget);
      CHECK(judged.summary.verdict == verdict::Verdict::kOutOfBudget);
      // Said once: the request goes on from there.
      for (const chain::Finding& finding : judged.findings) CHECK(finding.call == kCall);
    }
  }
}

TEST_CASE("the same without the states of the call before: by the ledger alone") {
  for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
    for (const Planted& mistake : planted()) {
      // Through bf16 is within nobody's sight in a bf16 pool, and a state never said to be
      // anything has no bits to be compared with.
      if (mistake.mistake == Mistake::kNarrowed || mistake.mistake == Mistake::kNone) continue;
      CAPTURE(std::string(mistake.what));
      CAPTURE(call::info(pool).name);
      std::vector<chain::Call> calls = chain_with(mistake, {.pool = pool, .seed = 6});
      for (std::size_t i = 1; i < kCall; ++i) {
        calls[i] = testing::without_states(std::move(calls[i]));
      }
      const testing::Judged judged = testing::judge(calls);
      REQUIRE(judged.summary.first);
      const chain::Finding& first = *judged.summary.first;
      CAPTURE(first.text);
      CHECK(call::name_of(first.mistake) == call::name_of(mistake.mistake));
      CHECK(first.check == Check::kLedger);
      CHECK(first.call == kCall);
      CHECK(first.request == 21);
    }
  }
}

TEST_CASE("tokens that are applied twice") {
  Server server({.seed = 7});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 0, .tokens = 9, .fresh = true}}));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 0}}));
  Server copy = server;
  copy.index = 1;  // the same tokens again
  copy.serve(Mode::kDecode, {{.request = 1, .slot = 0}});
  server.put(0, copy.state(0));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 0}}));
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(judged.findings.size() == 1);
  CAPTURE(judged.findings[0].text);
  CHECK(judged.findings[0].mistake == Mistake::kReplayedTwice);
  CHECK(judged.findings[0].call == 2);
}

TEST_CASE("a new request starts from what its slot held") {
  Server server({.seed = 8});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 9, .fresh = true}}));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 3}}));
  server.positions[2] = 0;
  calls.push_back(server.serve(Mode::kPrefill, {{.request = 2, .slot = 3, .tokens = 6}}));
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(!judged.findings.empty());
  const chain::Finding& first = judged.findings[0];
  CAPTURE(first.text);
  CHECK(first.check == Check::kFreshness);
  CHECK(first.mistake == Mistake::kStaleSlot);
  CHECK(first.request == 2);
  CHECK(first.slot == 3);
  CHECK(first.text.find("request 1") != std::string::npos);
}

TEST_CASE("a call that changes a slot it does not name, and the request that rested there") {
  Server server({.seed = 9});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 9, .fresh = true},
                                    {.request = 2, .slot = 4, .tokens = 9, .fresh = true}}));
  chain::Call call = server.serve(Mode::kDecode, {{.request = 1, .slot = 3}});
  std::vector<double> state = server.state(4);
  state[0] += 1.0;
  server.put(4, state);
  const std::int64_t size = std::ssize(state);
  call.record.outputs.at("final_state").set(4 * size, state[0]);
  calls.push_back(std::move(call));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 2, .slot = 4}}));
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  REQUIRE(judged.findings.size() == 2);
  CHECK(judged.findings[0].check == Check::kFrame);
  CHECK(judged.findings[0].call == 1);
  CHECK(judged.findings[0].request == 2);
  CHECK(judged.findings[0].slot == 4);
  CHECK(judged.findings[1].check == Check::kContinuity);
  CHECK(judged.findings[1].mistake == Mistake::kOverwritten);
  CHECK(judged.findings[1].call == 2);
}

TEST_CASE("a pad row that writes the slot of a request at rest") {
  Server server({.seed = 10});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 9, .fresh = true},
                                    {.request = 2, .slot = 0, .tokens = 9, .fresh = true}}));
  calls.push_back(
      server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = -1, .slot = 0}}));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 2, .slot = 0}}));
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(judged.findings.size() == 1);
  CAPTURE(judged.findings[0].text);
  CHECK(judged.findings[0].mistake == Mistake::kOverwritten);
  CHECK(judged.findings[0].call == 2);
  CHECK(judged.findings[0].request == 2);
}

TEST_CASE("a slot that another request had before says nothing of a later mistake in it") {
  Server server({.seed = 12});
  std::vector<chain::Call> calls;
  for (const std::int64_t request : {1, 2}) {
    calls.push_back(server.serve(Mode::kPrefill,
                                 {{.request = request, .slot = 3, .tokens = 9, .fresh = true}}));
  }
  calls.push_back(server.serve(Mode::kMtp, {{.request = 2, .slot = 3, .accepted = 3}}));
  server.put(3, server.left("intermediate_states", 1));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 2, .slot = 3}}));
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(judged.findings.size() == 1);
  CHECK(judged.findings[0].mistake == Mistake::kWrongRollback);
}

TEST_CASE("a kernel that is wrong in one call is wrong by itself, and its state has a name") {
  Server server({.seed = 11});
  std::vector<chain::Call> calls;
  calls.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 9, .fresh = true}}));
  const std::vector<double> before = server.state(3);
  chain::Call call = server.serve(Mode::kDecode, {{.request = 1, .slot = 3}});
  server.put(3, before);
  for (std::int64_t i = 0; i < std::ssize(before); ++i) {
    call.record.outputs.at("final_state")
        .set(3 * std::ssize(before) + i, before[static_cast<std::size_t>(i)]);
  }
  calls.push_back(std::move(call));
  calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 3}}));
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(judged.findings.size() == 2);
  CHECK(judged.findings[0].check == Check::kCall);
  CHECK(judged.findings[1].check == Check::kLedger);
  CHECK(judged.findings[1].mistake == Mistake::kNotWritten);
  CHECK(judged.findings[1].call == 1);
}

}  // namespace
