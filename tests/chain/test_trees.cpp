// SPDX-License-Identifier: Apache-2.0
//
// Trees of drafts in chains: a request goes on from the token that accepted_last names. Its
// position advances by the depth of that token, its ledger runs over the ancestors alone, and every
// other token of the tree is found and named. What says not enough, or contradicts itself, is said.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/take.hpp"
#include "fixtures/call/token_tree.hpp"
#include "reference/chain/step.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/expect_input.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Mistake;
using testing::ServedRow;
using testing::Server;

// Token 4 is three deep and token 6 two: neither is the one that its depth counts to.
const std::vector<std::int64_t> kParents{-1, 0, 0, -1, 2, 1, 3};
constexpr std::int64_t kSize = 7, kMtp = 2, kNext = 3;  // calls

void mtp(Server& server, std::vector<chain::Call>& calls, std::int64_t last) {
  calls.push_back(server.serve(
      Mode::kMtp, {{.request = 1, .slot = 3, .tokens = kSize, .parents = kParents, .last = last},
                   {.request = 2, .slot = 0, .tokens = 3, .parents = {-1, -1, 1}, .last = 2}}));
}
void decode(Server& server, std::vector<chain::Call>& calls) {
  calls.push_back(
      server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}}));
}

// Prompts, a decode, an MTP call of trees; `between`; two decodes.
template <class F>
std::vector<chain::Call> chain_of(testing::ServerOptions options, std::int64_t last, F&& between) {
  options.packed = true;
  Server server(options);
  std::vector<chain::Call> calls{server.serve_prompts()};
  decode(server, calls);
  mtp(server, calls, last);
  between(server);
  decode(server, calls);
  decode(server, calls);
  return calls;
}
std::vector<chain::Call> honest_chain(const testing::ServerOptions& options, std::int64_t last) {
  return chain_of(options, last, [](Server&) {});
}

std::vector<chain::Call> without_middle(std::vector<chain::Call> calls) {
  calls[1] = testing::without_states(std::move(calls[1]));
  calls[kMtp] = testing::without_states(std::move(calls[kMtp]));
  return calls;
}

void expect_error(const std::vector<chain::Call>& calls, std::int64_t at,
                  const std::string& words) {
  testing::expect_input(testing::judge(calls), at, words);
}

void expect_pass(const std::vector<chain::Call>& calls) {
  const testing::Judged judged = testing::judge(calls);
  for (const chain::Finding& finding : judged.findings) {
    FAIL_CHECK("call " << finding.call << ": " << finding.text);
  }
  CHECK(judged.summary.verdict == verdict::Verdict::kWithinBudget);
  CHECK(judged.summary.taken == 0);
}

}  // namespace

TEST_CASE("an honest server of trees passes, whichever token is kept") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
      for (std::int64_t last = -1; last < kSize; ++last) {
        CAPTURE(call::name_of(op));
        CAPTURE(call::info(pool).name);
        CAPTURE(last);
        std::vector<chain::Call> calls = honest_chain({.op = op, .pool = pool, .seed = 3}, last);
        expect_pass(calls);
        expect_pass(without_middle(calls));
        calls[kMtp].record.inputs.erase("accepted_counts");
        for (chain::Call& call : calls) call.record.inputs.erase("positions");
        expect_pass(calls);
      }
    }
  }
}

TEST_CASE("rows of equal length, of which some are trees, and MTP calls in a row") {
  Server server({.seed = 4});
  std::vector<chain::Call> calls{server.serve_prompts()};
  for (const std::int64_t last : {3, 1, -1, 2, 3}) {
    calls.push_back(
        server.serve(Mode::kMtp, {{.request = 1, .slot = 3, .parents = {-1, 0, 0, 2}, .last = last},
                                  {.request = -1, .slot = -1},
                                  {.request = 2, .slot = 0, .accepted = last + 1}}));
  }
  decode(server, calls);
  CHECK(server.positions[1] == 9 + 3 + 2 + 0 + 2 + 3 + 1);
  CHECK(server.positions[2] == 5 + 4 + 2 + 0 + 3 + 4 + 1);
  expect_pass(calls);
}

TEST_CASE("the state of token count - 1 is found and named, with stored states or by the ledger") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const std::int64_t last : {2, 3, 4, 5, 6}) {
      const std::int64_t count = call::depth_of(kParents, last + 1);
      CAPTURE(last);
      const auto calls = chain_of({.op = op, .seed = 5}, last, [&](Server& s) {
        s.put(3, s.left("intermediate_states", count - 1));
        s.put(0, s.left("intermediate_states", kSize + 1));  // depth 2
      });
      for (const auto& shown : {calls, without_middle(calls)}) {
        const testing::Judged judged = testing::judge(shown);
        REQUIRE(judged.findings.size() == 2);
        for (const chain::Finding& finding : judged.findings) {
          CAPTURE(finding.text);
          CHECK(finding.call == kNext);
          CHECK(call::name_of(finding.mistake) == call::name_of(Mistake::kTokenByCount));
          CHECK(finding.verdict == verdict::Verdict::kOutOfBudget);
        }
        CHECK(judged.findings[0].text.find("of token " + std::to_string(count - 1)) !=
              std::string::npos);
      }
    }
  }
}

TEST_CASE("every other token of the tree is found and named") {
  constexpr std::int64_t kLast = 4;
  for (std::int64_t wrong = 0; wrong < kSize; ++wrong) {
    if (wrong == kLast) continue;
    CAPTURE(wrong);
    const auto calls = chain_of({.seed = 6}, kLast,
                                [&](Server& s) { s.put(3, s.left("intermediate_states", wrong)); });
    for (const auto& shown : {calls, without_middle(calls)}) {
      const testing::Judged judged = testing::judge(shown);
      REQUIRE(judged.findings.size() == 1);
      const chain::Finding& finding = judged.findings[0];
      CAPTURE(finding.text);
      CHECK(finding.call == kNext);
      CHECK(finding.request == 1);
      CHECK(finding.mistake != Mistake::kNone);
      CHECK(finding.mistake != Mistake::kOffBoundary);
      CHECK(finding.text.find("the state of token " + std::to_string(wrong) + " of the 7 tokens") !=
            std::string::npos);
      CHECK(finding.text.find("where token 4 was kept") != std::string::npos);
    }
  }
}

TEST_CASE("ledger and transport of a token run over its ancestors, bit for bit") {
  const verdict::Slice& slice = delta::slice();
  for (const call::DType pool : {call::DType::kF32, call::DType::kBF16}) {
    const std::vector<chain::Call> calls = honest_chain({.pool = pool, .seed = 7}, 4);
    const call::Record& record = calls[kMtp].record;
    const chain::Layout layout(record, call::validate(record));
    const call::Record tree = chain::one_row(chain::tokens_of(record), 0);
    const call::Record decoded = chain::one_row(chain::tokens_of(calls[1].record), 0);
    const contract::Contract contract = slice.default_contract(record);
    const std::vector<chain::Known> zero{layout.zero()};
    const std::vector<chain::Known> starts{
        chain::Step(slice, contract, layout, decoded, zero).after(0, 1)};
    const chain::Step step(slice, contract, layout, tree, starts);
    for (std::int64_t after = 1; after <= kSize; ++after) {
      CAPTURE(after);
      call::Record alone = tree;
      const std::vector<std::int64_t> path = call::path_to(kParents, after);
      alone.inputs.erase("parent_tokens");
      for (auto& [name, tensor] : alone.inputs) {
        if (name != "cu_seqlens") tensor = call::take(tensor, 0, path);
      }
      alone.inputs["cu_seqlens"] = call::integer_tensor({0, std::ssize(path)});
      const chain::Step chained(slice, contract, layout, alone, starts);
      const chain::Known expected = chained.after(0, std::ssize(path));
      const chain::Known actual = step.after(0, after);
      CHECK(actual->state == expected->state);
      CHECK(actual->noise == expected->noise);
      CHECK(actual->error == expected->error);
      CHECK(actual->bias == expected->bias);
      CHECK(step.allowed(0, after).radius == chained.allowed(0, std::ssize(path)).radius);
    }
  }
}

TEST_CASE("a request goes back to an ancestor of the token that was kept, and to no other") {
  constexpr std::int64_t kLast = 4;             // of 0, 2, 4
  for (const std::int64_t token : {2, 1, 6}) {  // all two deep
    CAPTURE(token);
    Server server({.seed = 8, .packed = true});
    std::vector<chain::Call> calls{server.serve_prompts()};
    mtp(server, calls, kLast);
    const std::vector<double> state = server.left("intermediate_states", token);
    decode(server, calls);
    server.put(3, state);
    server.positions[1] = 9 + 2;
    calls.push_back(server.serve(Mode::kDecode, {{.request = 1, .slot = 3, .restored_from = 1}}));
    if (token == 2) {
      expect_pass(calls);
      continue;
    }
    const testing::Judged judged = testing::judge(calls);
    REQUIRE(judged.findings.size() == 1);
    CHECK(judged.findings[0].call == 3);
    CHECK(judged.findings[0].mistake == Mistake::kWrongRollback);
  }
}

TEST_CASE("a tree that goes on without accepted_last is an error of input") {
  std::vector<chain::Call> calls = honest_chain({.seed = 9}, 4);
  calls[kMtp].record.inputs.erase("accepted_last");
  expect_error(calls, kNext, "the tree (parent_tokens) of call 2 goes on: expected accepted_last");
  CHECK(testing::judge(calls).findings.size() == 2);
  // It does not go on: the dump ends, the request begins anew, or nothing was kept.
  CHECK(testing::judge({calls[0], calls[1], calls[2]}).findings.empty());
  Server server({.seed = 9, .packed = true});
  std::vector<chain::Call> more{server.serve_prompts()};
  mtp(server, more, 4);
  more.back().record.inputs.erase("accepted_last");
  more.push_back(
      server.serve(Mode::kPrefill, {{.request = 1, .slot = 3, .tokens = 4, .fresh = true}}));
  expect_pass(more);
  // A request that begins as another one, in the midst of its tree.
  std::vector<chain::Call> fork = honest_chain({.seed = 9}, 4);
  fork.resize(3);
  fork[kMtp].record.inputs.erase("accepted_last");
  Server other({.seed = 10, .packed = true});
  other.index = 3;
  other.positions[7] = 12;
  fork.push_back(other.serve(Mode::kDecode, {{.request = 7, .slot = 1, .restored_from = 1}}));
  expect_error(fork, 3, "expected accepted_last");
}

TEST_CASE("a tree of which nothing is kept needs no accepted_last; nor do parents of a chain") {
  std::vector<chain::Call> calls{};
  Server server({.seed = 11});
  calls.push_back(server.serve_prompts());
  calls.push_back(
      server.serve(Mode::kMtp, {{.request = 1, .slot = 3, .parents = {-1, 0, 0, 1}, .last = -1},
                                {.request = 2, .slot = 0, .accepted = 2}}));
  calls.back().record.inputs.erase("accepted_last");
  decode(server, calls);
  expect_pass(calls);
  calls[1].record.inputs.erase("accepted_counts");  // positions say it
  expect_pass(calls);
}

TEST_CASE("numbers of accepted_last that cannot be are refused") {
  struct Bad {
    const char* input;
    double value;
    const char* words;
  };
  for (const Bad& bad : std::initializer_list<Bad>{
           {"accepted_last", 7.0, "/inputs/accepted_last[0]: expected -1 to 6, actual 7"},
           {"accepted_last", -2.0, "/inputs/accepted_last[0]: expected -1 to 6, actual -2"},
           {"accepted_counts", 5.0,
            "/inputs/accepted_counts[0]: expected 3, the tokens that lead to accepted_last 4, "
            "actual 5"},
           {"accepted_last", -1.0, "expected 0, the tokens that lead to accepted_last -1"}}) {
    CAPTURE(bad.words);
    std::vector<chain::Call> calls = honest_chain({.seed = 12}, 4);
    calls[kMtp].record.inputs.at(bad.input).set(0, bad.value);
    expect_error(calls, kMtp, bad.words);
    calls[kMtp] = testing::without_states(std::move(calls[kMtp]));
    expect_error(calls, kMtp, bad.words);
  }
  std::vector<chain::Call> calls = honest_chain({.seed = 12}, 4);
  calls[kMtp] = testing::without_states(std::move(calls[kMtp]));
  calls[kMtp].record.inputs.at("parent_tokens").set(2, 2.0);
  expect_error(calls, kMtp, "/inputs/parent_tokens[2]: expected -1 to 1, actual 2");
  // Either type of integer; beside no other call.
  calls = honest_chain({.seed = 12}, 4);
  call::Tensor& last = calls[kMtp].record.inputs.at("accepted_last");
  last = call::Tensor(call::DType::kI32, last.shape(), last.to_doubles());
  expect_pass(calls);
  calls[kNext].record.inputs["accepted_last"] = last;
  expect_error(calls, kNext, "accepted_last");
}
