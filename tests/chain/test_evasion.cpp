// SPDX-License-Identifier: Apache-2.0
//
// Labels by which a server could take its states out of judgement, knowingly or by a recorder's
// mistake: unknown sources of restored states, new ids, positions that are left out, a first call
// with a wider pool, more states than there is memory for.
#include <doctest/doctest.h>

#include <string>

#include "reference/delta/slice.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using testing::Server;

constexpr double kUnknown = 999.0;

// Two requests that are decoded, in slots 3 and 0; `swap`: their states are exchanged before
// call 3.
std::vector<chain::Call> decoded(std::uint64_t seed, bool swap) {
  Server server({.seed = seed});
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  for (int i = 0; i < 4; ++i) {
    if (swap && i == 2) {
      const std::vector<double> state = server.state(3);
      server.put(3, server.state(0));
      server.put(0, state);
    }
    calls.push_back(
        server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}}));
  }
  return calls;
}

void restore_all_from_unknown(std::vector<chain::Call>& calls) {
  for (chain::Call& call : calls) {
    call::Tensor& from = call.record.inputs.at("restored_from");
    for (std::int64_t row = 0; row < from.size(); ++row) from.set(row, kUnknown);
  }
}

TEST_CASE("a state from an unknown source is judged by the request's own ledger") {
  std::vector<chain::Call> calls = decoded(1, false);
  restore_all_from_unknown(calls);
  const testing::Judged honest = testing::judge(calls);
  CHECK(honest.findings.empty());
  CHECK(honest.summary.judged == honest.summary.states);
  CHECK(honest.summary.taken == 0);
  calls = decoded(1, true);
  restore_all_from_unknown(calls);
  const testing::Judged wrong = testing::judge(calls);
  REQUIRE(wrong.findings.size() == 2);
  CHECK(wrong.findings[0].check == Check::kLedger);
  CHECK(wrong.findings[0].call == 3);
  CHECK(wrong.findings[0].mistake == chain::Mistake::kOtherRequest);
  CHECK(wrong.summary.verdict == verdict::Verdict::kOutOfBudget);
}

TEST_CASE(
    "a state from an unknown source that nothing is known of is taken for right, and counted") {
  std::vector<chain::Call> calls = decoded(2, false);
  calls.erase(calls.begin());
  restore_all_from_unknown(calls);
  const testing::Judged judged = testing::judge(calls);
  CHECK(judged.findings.empty());
  CHECK(judged.summary.taken == 2);
  CHECK(judged.summary.judged == judged.summary.states - 2);
}

TEST_CASE("restored from somewhere, nobody says where") {
  std::vector<chain::Call> calls = decoded(3, false);
  restore_all_from_unknown(calls);
  for (chain::Call& call : calls) call.record.inputs.erase("positions");
  const testing::Judged judged = testing::judge(calls);
  REQUIRE(!judged.findings.empty());
  for (const chain::Finding& finding : judged.findings) {
    CAPTURE(finding.text);
    CHECK(finding.check == Check::kInput);
    CHECK(finding.verdict == verdict::Verdict::kError);
    CHECK(finding.text.find("restored_from 999: expected positions") != std::string::npos);
  }
}

// After the call `from` request 1 has another id; its positions stay, are moved or left out.
std::vector<chain::Call> with_new_id(std::uint64_t seed, std::size_t from, double moved,
                                     bool positions) {
  std::vector<chain::Call> calls = decoded(seed, false);
  for (std::size_t i = from; i < calls.size(); ++i) {
    call::TensorMap& inputs = calls[i].record.inputs;
    inputs.at("request_ids").set(0, 77.0);
    inputs.at("positions").set(0, inputs.at("positions")[0] + moved);
  }
  for (chain::Call& call : calls) {
    if (!positions) call.record.inputs.erase("positions");
  }
  return calls;
}

TEST_CASE("a new request on the state of another is the same conversation, or suspect") {
  const testing::Judged same = testing::judge(with_new_id(4, 3, 0.0, true));
  CHECK(same.findings.empty());
  CHECK(same.summary.taken == 0);
  CHECK(same.summary.judged == same.summary.states);
  for (const bool positions : {true, false}) {
    const testing::Judged other = testing::judge(with_new_id(4, 3, 5.0, positions));
    REQUIRE(other.findings.size() == 1);
    CAPTURE(other.findings[0].text);
    CHECK(other.findings[0].call == 3);
    CHECK(other.findings[0].request == 77);
    CHECK(other.findings[0].check == Check::kInput);
    CHECK(other.findings[0].text.find("request 1 left at position 11: a stale slot, unless") !=
          std::string::npos);
    CHECK(other.summary.verdict == verdict::Verdict::kMistrusted);
    CHECK(other.summary.taken == 1);
  }
}

TEST_CASE("the type of the pool is that of the first call that has one") {
  // Without the refusal, all states would be granted roundings to bf16.
  std::vector<chain::Call> calls = decoded(5, false);
  call::Tensor& pool = calls[0].record.inputs.at("initial_state");
  pool = call::Tensor(call::DType::kBF16, pool.shape(),
                      std::vector<double>(static_cast<std::size_t>(pool.size()), 0.0));
  calls[0].record.outputs.erase("final_state");
  const testing::Judged judged = testing::judge(calls, {.only_chain = true});
  REQUIRE(judged.findings.size() == 4);
  CHECK(judged.findings[0].text.find("/inputs/initial_state: expected bf16") != std::string::npos);
  CHECK(judged.findings[0].text.find("actual f32") != std::string::npos);
  CHECK(judged.summary.verdict == verdict::Verdict::kError);
  // A call whose states are not stored says the type of the pool with a pool of no slots. What the
  // pool itself is counts: the others go on, or are left out.
  for (const std::size_t empty : {0U, 2U}) {
    CAPTURE(empty);
    calls = decoded(5, false);
    calls[empty] = testing::without_states(std::move(calls[empty]));
    CHECK(testing::judge(calls, {.only_chain = true}).findings.empty());
    call::Tensor& none = calls[empty].record.inputs.at("initial_state");
    none = call::Tensor(call::DType::kBF16, none.shape());
    const testing::Judged other = testing::judge(calls, {.only_chain = true});
    REQUIRE(!other.findings.empty());
    CHECK(other.findings[0].check == Check::kInput);
    CHECK(other.findings[0].verdict == verdict::Verdict::kError);
    CHECK(other.findings[0].call == (empty == 0 ? 1 : 2));
    CHECK(other.findings[0].text.find(
              empty == 0 ? "expected bf16, the type of the pool of no slots in call 0, actual f32"
                         : "expected f32, the type of the pool in call 0, actual bf16") !=
          std::string::npos);
    CHECK(other.summary.verdict == verdict::Verdict::kError);
  }
}

TEST_CASE("a call whose ledgers need more than there is is said, and the others are judged") {
  std::vector<chain::Call> calls = decoded(6, false);
  const double two = 2.0 * Server::kHV * Server::kK * Server::kV * sizeof(double);
  const testing::Judged judged = testing::judge(calls, {.call_bytes = two});
  REQUIRE(judged.findings.size() == calls.size());
  CHECK(judged.findings[0].call == 0);
  CHECK(judged.findings[0].text.find("at most 8192 bytes (--memory)") != std::string::npos);
  CHECK(judged.summary.verdict == verdict::Verdict::kError);
  // Small tensors with a huge state: an outer product of k and v.
  chain::Call huge = testing::without_states(std::move(calls[0]));
  CHECK(testing::judge({huge}, {.call_bytes = 1e9}).findings.empty());
  call::TensorMap& inputs = huge.record.inputs;
  const auto wide = [&](const char* name, std::int64_t heads, std::int64_t width) {
    const std::int64_t tokens = inputs.at(name).shape()[0];
    inputs[name] = call::Tensor(call::DType::kBF16, {tokens, heads, width});
  };
  wide("q", Server::kH, 256);
  wide("k", Server::kH, 256);
  wide("v", Server::kHV, std::int64_t{1} << 22U);
  inputs["initial_state"] =
      call::Tensor(call::DType::kF32, {0, Server::kHV, std::int64_t{1} << 22U, 256});
  const testing::Judged refused = testing::judge({huge}, {.call_bytes = 1e9});
  REQUIRE(refused.findings.size() == 1);
  CHECK(refused.findings[0].text.find("at most 1000000000 bytes (--memory)") != std::string::npos);
}

}  // namespace
