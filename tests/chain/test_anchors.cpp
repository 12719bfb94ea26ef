// SPDX-License-Identifier: Apache-2.0
//
// A start is somebody's end: what a row restores from a request of the dump is a state that this
// request has had. At each position an honest server passes and garbage does not, whether or not a
// call has stored the state, and where nobody can know it, the chain says so.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/expect_input.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using testing::Server;
using State = std::vector<double>;

constexpr std::int64_t kPrompt = 20, kDecodes = 4, kLast = kPrompt + kDecodes;
constexpr std::int64_t kBetween = 11;  // no checkpoint of the prompt, which are 8 and 16

// The state of row 0 of a prefill call after so many of its tokens, of which nothing is stored.
State state_within(const chain::Call& call, std::int64_t tokens) {
  call::Record r = call.record;
  r.inputs["checkpoint_offsets"] = call::integer_tensor({tokens});
  r.inputs["cu_checkpoints"] = call::integer_tensor({0, 1, 1});
  r.outputs.clear();
  const verdict::Slice& slice = delta::slice();
  const auto all = slice.emulate(r, slice.default_contract(r), 77);
  State state = all.at("checkpoints").to_doubles();
  for (double& x : state) x = call::round_to(r.inputs.at("initial_state").dtype(), x);
  return state;
}

// Request 1 has a prompt of 20 tokens and four decodes, request 2 beside it another one.
struct Served {
  explicit Served(const testing::ServerOptions& options) : server(options) {
    calls.push_back(
        server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = kPrompt, .fresh = true},
                                      {.request = 2, .slot = 0, .tokens = 5, .fresh = true}}));
    states[kBetween] = state_within(calls[0], kBetween);
    states[8] = server.left("checkpoints", 0);
    states[kPrompt] = server.state(3);
    for (std::int64_t n = 1; n <= kDecodes; ++n) {
      decode({{.request = 1, .slot = 3}, {.request = 2, .slot = 0}});
      states[kPrompt + n] = server.state(3);
    }
  }

  void decode(const std::vector<testing::ServedRow>& rows) {
    calls.push_back(server.serve(Mode::kDecode, rows));
  }
  // `request` goes on in slot 1 from what request `from` had at `position`.
  void restore(std::int64_t request, std::int64_t from, std::int64_t position, const State& state) {
    server.put(1, state);
    server.positions[request] = position;
    decode({{.request = request, .slot = 1, .restored_from = from}});
    decode({{.request = request, .slot = 1}});
  }
  [[nodiscard]] State garbage() const {
    State state = server.state(0);
    std::ranges::reverse(state);
    return state;
  }

  Server server;
  std::vector<chain::Call> calls;
  std::map<std::int64_t, State> states;  // of request 1
};

// Of the calls of request 1 nothing but tokens is stored.
void leave_states_out(std::vector<chain::Call>& calls) {
  for (std::size_t i = 0; i <= kDecodes; ++i) {
    calls[i] = testing::without_states(std::move(calls[i]));
  }
}

testing::Judged judge(const std::vector<chain::Call>& calls,
                      const chain::Options& options = {.only_chain = true}) {
  return testing::judge(calls, options);
}

void expect_pass(const testing::Judged& judged) {
  for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.taken == 0);
  CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
}

void expect_refused(const testing::Judged& judged, std::int64_t call) {
  REQUIRE(judged.findings.size() == 1);
  CAPTURE(judged.findings[0].text);
  CHECK(judged.findings[0].call == call);
  CHECK((judged.findings[0].check == Check::kLedger ||
         judged.findings[0].check == Check::kContinuity));
  CHECK(judged.summary.verdict == verdict::Verdict::kOutOfBudget);
}

void expect_mistrusted(const testing::Judged& judged, const std::string& words) {
  REQUIRE(judged.findings.size() == 1);
  CAPTURE(judged.findings[0].text);
  CHECK(judged.findings[0].check == Check::kInput);
  CHECK(judged.findings[0].text.find(words) != std::string::npos);
  CHECK(judged.summary.verdict == verdict::Verdict::kMistrusted);
}

// `request` takes over what request 1 had at that position; `stored`: calls have their states.
void expect_judged(call::DType pool, std::int64_t position, std::int64_t request, bool stored) {
  CAPTURE(position);
  CAPTURE(request);
  CAPTURE(stored);
  Served honest({.pool = pool, .seed = 3});
  Served wrong = honest;
  honest.restore(request, 1, position, honest.states.at(position));
  wrong.restore(request, 1, position, wrong.garbage());
  if (!stored) {
    leave_states_out(honest.calls);
    leave_states_out(wrong.calls);
  }
  expect_pass(judge(honest.calls));
  expect_refused(judge(wrong.calls), kDecodes + 1);
}

TEST_CASE("a state of a request of the dump is judged at every position") {
  for (const bool stored : {true, false}) {
    for (const std::int64_t request : {7L, 1L}) {  // a new one, and itself going back
      expect_judged(call::DType::kF32, kBetween, request, stored);
      expect_judged(call::DType::kF32, kPrompt + 2, request, stored);
    }
    expect_judged(call::DType::kBF16, kBetween, 7, stored);
    expect_judged(call::DType::kF32, kLast, 7, stored);
  }
}

TEST_CASE("a request that began again has had the states of its former life") {
  Served served({.seed = 9});
  const State before = served.states.at(kBetween);
  served.calls.push_back(served.server.serve(
      Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = kPrompt, .fresh = true}}));
  SUBCASE("which no call has stored") {
    served.restore(7, 1, kBetween, before);
    CHECK(judge(served.calls).findings.empty());
  }
  SUBCASE("and of its present one") {
    served.restore(7, 1, 8, served.server.left("checkpoints", 0));
    CHECK(judge(served.calls).findings.empty());
  }
  SUBCASE("and no other") {
    served.restore(7, 1, kBetween, served.garbage());
    expect_refused(judge(served.calls), kDecodes + 2);
  }
  SUBCASE("and nobody knows which of them a start is that is not stored") {
    served.restore(7, 1, kBetween, before);
    chain::Call& restored = served.calls[served.calls.size() - 2];
    restored = testing::without_states(restored);
    const testing::Judged judged = judge(served.calls);
    CHECK(judged.findings.empty());
    CHECK(judged.summary.taken == 1);
  }
}

TEST_CASE("two requests start from one slot and write two others") {
  Served served({.seed = 10});
  for (const std::int64_t slot : {1L, 2L, 4L}) served.server.put(slot, served.states.at(8));
  for (const std::int64_t request : {7L, 8L}) served.server.positions[request] = 8;
  served.decode({{.request = 7, .slot = 1, .restored_from = 1},
                 {.request = 8, .slot = 2, .restored_from = 1}});
  call::Record& forked = served.calls.back().record;
  forked.inputs["output_state_indices"] = forked.inputs.at("state_indices");
  forked.inputs["state_indices"] = call::integer_tensor({4, 4});
  served.decode({{.request = 8, .slot = 2}, {.request = 7, .slot = 1}});
  CHECK(judge(served.calls).findings.empty());
}

TEST_CASE("a state of the request itself at another position is none of this one") {
  Served served({.seed = 4});
  served.restore(7, 1, kPrompt + 2, served.states.at(kPrompt + 1));
  expect_refused(judge(served.calls), kDecodes + 1);
}

TEST_CASE("a request has no state beyond its last position") {
  for (const std::int64_t request : {7L, 1L}) {
    for (const std::int64_t position : {kLast + 1, std::int64_t{500}}) {
      Served served({.seed = 5});
      served.restore(request, 1, position, served.garbage());
      testing::expect_input(judge(served.calls), kDecodes + 1,
                            "expected a position of request 1, which has come to 24, actual " +
                                std::to_string(position));
    }
  }
}

TEST_CASE("the second slot of a decode and of an MTP call is a state of its request") {
  for (const Mode mode : {Mode::kDecode, Mode::kMtp}) {
    for (const bool is_honest : {true, false}) {
      CAPTURE(is_honest);
      Served served({.seed = 6});
      Server& server = served.server;
      served.calls.push_back(server.serve(
          mode, {{.request = 1, .slot = 3, .accepted = 3}, {.request = 2, .slot = 0}}));
      call::Record& r = served.calls.back().record;
      const std::int64_t after = mode == Mode::kMtp ? 2 : 1;
      r.inputs["checkpoint_state_indices"] = call::integer_tensor({5, -1});
      r.inputs["checkpoint_tokens"] = call::integer_tensor({after, 0});
      const State second =
          mode == Mode::kMtp ? server.left("intermediate_states", after - 1) : server.state(3);
      server.put(5, second);
      const auto first = std::ssize(second) * 5;
      call::Tensor& pool = r.outputs.at("final_state");
      for (std::size_t i = 0; i < second.size(); ++i) {
        pool.set(first + static_cast<std::int64_t>(i), second[i]);
      }
      r.outputs.erase("intermediate_states");
      for (int i = 0; i < 3; ++i) {
        served.decode({{.request = 1, .slot = 3}, {.request = 2, .slot = 0}});
      }
      served.restore(7, 1, kLast + after, is_honest ? second : served.garbage());
      const testing::Judged judged = judge(served.calls);
      is_honest ? expect_pass(judged) : expect_refused(judged, kDecodes + 5);
    }
  }
}

TEST_CASE("a request goes back behind the place where it was taken from another") {
  for (const bool is_honest : {true, false}) {
    Served served({.seed = 7});
    served.restore(7, 1, kPrompt + 2, served.states.at(kPrompt + 2));
    // Request 1 goes on elsewhere; of that request 7 has nothing.
    served.restore(1, 1, 8, served.states.at(8));
    served.server.put(1, is_honest ? served.states.at(kBetween) : served.garbage());
    served.server.positions[7] = kBetween;
    served.decode({{.request = 7, .slot = 1, .restored_from = 7}});
    const testing::Judged judged = judge(served.calls);
    is_honest ? expect_pass(judged) : expect_refused(judged, kDecodes + 5);
  }
}

TEST_CASE("what nobody can know is said, and not taken for right") {
  for (const bool is_honest : {true, false}) {
    Served served({.seed = 8});
    served.restore(7, 1, kBetween, is_honest ? served.states.at(kBetween) : served.garbage());
    served.calls.erase(served.calls.begin(), served.calls.begin() + 2);  // the prompt among them
    expect_mistrusted(judge(served.calls),
                      "the state of request 1 at position 11 is stored by no call");
  }
  // Nor does a limit of memory make a wrong state right.
  Served served({.seed = 9});
  served.restore(7, 1, kBetween, served.garbage());
  const testing::Judged judged = judge(served.calls, {.only_chain = true, .most_bytes = 1});
  CHECK(judged.summary.verdict == verdict::Verdict::kMistrusted);
}

TEST_CASE("a start that is taken for right is counted, and refused where that is asked for") {
  const auto verdict_of = [](const std::vector<chain::Call>& calls, auto count) {
    const testing::Judged judged = judge(calls);
    CHECK(judged.findings.empty());
    CHECK(count(judged.summary) == 1);
    CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
    const testing::Judged strict = judge(calls, {.only_chain = true, .strict = true});
    CHECK(strict.findings.empty());
    CHECK(strict.summary.reason.find("strict") != std::string::npos);
    return strict.summary.verdict;
  };
  const auto taken = [](const chain::Summary& s) { return s.taken; };
  Served source({.seed = 10});
  expect_pass(judge(source.calls, {.only_chain = true, .strict = true}));

  Served unknown = source;  // a request that the dump does not know
  unknown.restore(7, 55, 30, unknown.garbage());
  CHECK(verdict_of(unknown.calls, taken) == verdict::Verdict::kMistrusted);

  Served begun = source;  // a new id
  begun.server.put(1, begun.garbage());
  begun.server.positions[7] = 30;
  begun.decode({{.request = 7, .slot = 1}});
  CHECK(verdict_of(begun.calls, taken) == verdict::Verdict::kMistrusted);

  Served again = source;  // position 0
  again.calls.push_back(
      again.server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 5, .fresh = true}}));
  CHECK(verdict_of(again.calls, [](const chain::Summary& s) { return s.restarts; }) ==
        verdict::Verdict::kMistrusted);
}

}  // namespace
