// SPDX-License-Identifier: Apache-2.0
//
// o of calls whose states are not stored: what the requests' own ledgers make of the tokens.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using testing::Server;
using verdict::Verdict;

// Prompts, four decodes, verifies that keep 0 to all tokens, a second part of a prompt; of the
// calls in between nothing but o is stored.
std::vector<chain::Call> outputs_alone(const testing::ServerOptions& options) {
  Server server(options);
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  const auto serve = [&](Mode mode, const std::vector<testing::ServedRow>& rows) {
    calls.push_back(testing::with_o_alone(server.serve(mode, rows)));
  };
  for (int i = 0; i < 4; ++i) {
    serve(Mode::kDecode,
          {{.request = 2, .slot = 0}, {.request = -1, .slot = -1}, {.request = 1, .slot = 3}});
  }
  for (const std::int64_t accepted : {2, 0, 4, 1}) {
    serve(Mode::kMtp, {{.request = 1, .slot = 3, .accepted = accepted},
                       {.request = 2, .slot = 0, .accepted = 4 - accepted}});
  }
  serve(Mode::kMtp,
        {{.request = 1, .slot = 3, .accepted = 1, .parents = {-1, -1, 0, 1}, .last = 3},
         {.request = 2, .slot = 0, .accepted = 1, .parents = {-1, 0, 0, 2}, .last = 1}});
  serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 20},
                         {.request = 2, .slot = 0, .tokens = 3},
                         {.request = 3, .slot = 5, .tokens = 7, .fresh = true}});
  calls.push_back(server.serve(
      Mode::kDecode,
      {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}, {.request = 3, .slot = 5}}));
  return calls;
}

std::int64_t element(const chain::Call& call, std::int64_t token, std::int64_t channel) {
  CHECK(call.record.outputs.at("o").size() > token * Server::kHV * Server::kV);
  return token * Server::kHV * Server::kV + channel;
}

void change(chain::Call& call, std::int64_t i, double to) { call.record.outputs["o"].set(i, to); }

TEST_CASE("honest outputs of calls without states are within what the ledgers allow") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(call::name_of(op));
        CAPTURE(call::info(pool).name);
        CAPTURE(seed);
        const testing::Judged judged =
            testing::judge(outputs_alone({.op = op, .pool = pool, .seed = seed}));
        for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
        CHECK(judged.findings.empty());
        CHECK(judged.summary.verdict == Verdict::kWithinBudget);
        CHECK(judged.summary.outputs == 4 * 2 + 5 * 2 + 3);
        CHECK(judged.summary.outputs_judged == judged.summary.outputs);
        CHECK(judged.summary.outputs_blind == 0);
      }
    }
  }
}

TEST_CASE("one wrong element of an o without states is said of its request, once") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct WrongElement {
    std::size_t call;
    std::int64_t token, request;
  };
  for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
    // Decodes, tokens of MTP calls that are kept and that are not, of a tree, of a prompt.
    for (const WrongElement& c :
         {WrongElement{2, 0, 2}, WrongElement{4, 2, 1}, WrongElement{5, 1, 1},
          WrongElement{5, 3, 1}, WrongElement{6, 0, 1}, WrongElement{8, 7, 2},
          WrongElement{9, 2, 1}, WrongElement{9, 7, 2}, WrongElement{10, 0, 1},
          WrongElement{10, 19, 1}, WrongElement{10, 21, 2}, WrongElement{10, 29, 3}}) {
      for (const double by : {1.3, kNan}) {
        CAPTURE(call::info(pool).name);
        CAPTURE(c.call);
        CAPTURE(c.token);
        CAPTURE(by);
        std::vector<chain::Call> calls = outputs_alone({.pool = pool, .seed = 2});
        const call::Tensor& o = calls[c.call].record.outputs.at("o");
        std::int64_t largest = element(calls[c.call], c.token, 0);
        for (std::int64_t i = largest; i < element(calls[c.call], c.token, Server::kV); ++i) {
          if (std::abs(o[i]) > std::abs(o[largest])) largest = i;
        }
        change(calls[c.call], largest, o[largest] * by);
        const testing::Judged judged = testing::judge(calls);
        REQUIRE(judged.findings.size() == 1);
        const chain::Finding& finding = judged.findings[0];
        CAPTURE(finding.text);
        CHECK(finding.check == Check::kOutputs);
        CHECK(finding.verdict == Verdict::kOutOfBudget);
        CHECK(finding.call == static_cast<std::int64_t>(c.call));
        CHECK(finding.request == c.request);
        CHECK(finding.text.find("1 of ") != std::string::npos);
        CHECK(judged.summary.verdict == Verdict::kOutOfBudget);
      }
    }
  }
}

TEST_CASE("o of rows of padding is not looked at") {
  std::vector<chain::Call> calls = outputs_alone({.seed = 3});
  for (std::int64_t i = 0; i < Server::kHV * Server::kV; ++i) {
    change(calls[2], element(calls[2], 1, i), std::numeric_limits<double>::quiet_NaN());
  }
  CHECK(testing::judge(calls).findings.empty());
}

TEST_CASE("a request whose o stays wrong is said once, until a state of it is stored") {
  std::vector<chain::Call> calls = outputs_alone({.seed = 4});
  for (std::size_t i = 2; i < 10; ++i) {
    call::Tensor& o = calls[i].record.outputs["o"];
    for (std::int64_t e = 0; e < o.size(); ++e) o.set(e, 100.0 * o[e] + 1.0);
  }
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(judged.findings.size() == 2);
  for (const chain::Finding& finding : judged.findings) CHECK(finding.call == 2);
  CHECK(judged.summary.outputs_judged < judged.summary.outputs);
}

// The pool rounds the same state the same way at every call, and what it loses adds up.
TEST_CASE("a ledger that grants as much as there is makes no pass") {
  for (const bool o : {true, false}) {
    CAPTURE(o);
    Server server({.pool = call::DType::kBF16,
                   .seed = 3,
                   .fastest_decay = -1e-3,
                   .slowest_decay = -1e-3,
                   .repeats = true});
    std::vector<chain::Call> calls;
    calls.push_back(
        server.serve(Mode::kPrefill, {{.request = 1, .slot = 2, .tokens = 8, .fresh = true}}));
    for (int i = 0; i < 200; ++i) {
      const chain::Call call = server.serve(Mode::kDecode, {{.request = 1, .slot = 2}});
      calls.push_back(o ? testing::with_o_alone(call) : testing::without_states(call));
    }
    if (!o) calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 2}}));
    const testing::Judged judged = testing::judge(calls);
    for (const chain::Finding& finding : judged.findings) MESSAGE(finding.text);
    CHECK(judged.findings.empty());
    CHECK(judged.summary.verdict == Verdict::kMistrusted);
    CHECK((o ? judged.summary.outputs_blind : judged.summary.blind_starts) > 0);
    CHECK(judged.summary.reason.find("by their ledgers alone") != std::string::npos);
  }
}

}  // namespace
