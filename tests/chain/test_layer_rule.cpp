// SPDX-License-Identifier: Apache-2.0
//
// One server, one rule: a convention that changes from call to call is said with both calls, though
// each call is right by what it says of itself.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>

#include "reference/calls/kernel.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Check;
using testing::Server;
using verdict::Verdict;

using RuleChange = std::function<void(call::Record&)>;

// Its outputs by an honest kernel that does what the call says.
void compute(call::Record& record) {
  record.outputs.clear();
  const contract::Contract& contract = delta::slice().default_contract(record);
  record.outputs = calls::stored(record, contract, delta::slice().emulate(record, contract, 9));
}

// Four decodes whose states are not stored, by themselves and in a row; `first` changes all calls,
// `change` call 3.
testing::Judged judged(const RuleChange& first, const RuleChange& change) {
  Server server({.seed = 8});
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  for (int i = 0; i < 4; ++i) {
    calls.push_back(
        server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}}));
  }
  for (chain::Call& call : calls) {
    first(call.record);
    if (call.index == 3) change(call.record);
    if (call.index > 0) {
      call = testing::without_states(std::move(call));
    } else {
      compute(call.record);
    }
  }
  return testing::judge(calls, {.only_chain = true});
}

void nothing(call::Record& /*record*/) {}

void unit_rows(call::Record& record) {
  for (const char* name : {"q", "k"}) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t row = 0; row < x.size(); row += Server::kK) {
      double square = 0.0;
      for (std::int64_t i = row; i < row + Server::kK; ++i) square += x[i] * x[i];
      for (std::int64_t i = row; i < row + Server::kK; ++i) x.set(i, x[i] / std::sqrt(square));
    }
  }
}

void softplus(call::Record& record) {
  record.convention.gate = call::Gate::kSoftplus;
  record.inputs["a"] = record.inputs.at("g");
  record.inputs.erase("g");
  record.inputs["A_log"] = call::Tensor(call::DType::kF32, {Server::kHV});
  record.inputs["dt_bias"] = call::Tensor(call::DType::kF32, {Server::kHV});
}

void sigmoid(call::Record& record) {
  record.convention.beta = call::BetaForm::kSigmoid;
  record.inputs["b"] = record.inputs.at("beta");
  record.inputs.erase("beta");
}

void expect(const testing::Judged& found, Verdict verdict, const std::string& words) {
  REQUIRE(found.findings.size() == 1);
  const chain::Finding& finding = found.findings[0];
  CAPTURE(finding.text);
  CHECK(finding.check == Check::kParameters);
  CHECK(finding.call == 3);
  CHECK(finding.verdict == verdict);
  CHECK(finding.text.find(words) != std::string::npos);
  CHECK(found.summary.verdict == verdict);
}

TEST_CASE("what a layer is may not change from call to call") {
  expect(judged(nothing, [](call::Record& r) { r.convention.scale = 0.125; }),
         Verdict::kOutOfBudget, "call 3 has scale 0.125 where call 0 had 0.25");
  expect(judged(softplus, [](call::Record& r) { r.convention.softplus_beta = 2.0; }),
         Verdict::kOutOfBudget, "call 3 has softplus_beta 2 where call 0 had 1");
  expect(judged(softplus, [](call::Record& r) { r.convention.gate = call::Gate::kBounded; }),
         Verdict::kOutOfBudget, "call 3 has gate bounded where call 0 had softplus");
  expect(judged(sigmoid, [](call::Record& r) { r.convention.beta = call::BetaForm::kSigmoid2; }),
         Verdict::kOutOfBudget, "call 3 has beta sigmoid2 where call 0 had sigmoid");
  expect(judged(nothing, [](call::Record& r) { r.convention.qk_l2norm = call::QkNorm::kNone; }),
         Verdict::kOutOfBudget, "call 3 has qk_l2norm none where call 0 had rsqrt_sum_eps");
  expect(judged(nothing, [](call::Record& r) { r.convention.l2_eps = 1e-5; }),
         Verdict::kOutOfBudget, "call 3 has l2_eps 1e-05 where call 0 had 1e-06");
}

TEST_CASE("a norm in some calls alone is seen in the lengths of q and k") {
  expect(judged(unit_rows,
                [](call::Record& r) {
                  r.convention.qk_l2norm = call::QkNorm::kNone;
                  r.inputs.at("k").set(0, 0.0);
                }),
         Verdict::kMistrusted, "call 3 has qk_l2norm none where call 0 had rsqrt_sum_eps");
}

TEST_CASE("what does not reach the mathematics may change") {
  for (const RuleChange& change :
       {RuleChange([](call::Record& r) { r.convention.pad_slot = -7; }),
        RuleChange([](call::Record& r) { r.convention.scale = 0.25; }),  // the default of K = 16
        RuleChange([](call::Record& r) {
          r.convention.scale = static_cast<double>(std::nextafter(0.25F, 1.0F));
        }),
        RuleChange([](call::Record& r) { r.convention.softplus_beta = 2.0; }),  // the gate is log
        RuleChange([](call::Record& r) { r.convention.lower_bound = -1.0; }),
        RuleChange([](call::Record& r) { r.convention.gate = call::Gate::kLog2; }),
        RuleChange(softplus), RuleChange(sigmoid),
        RuleChange([](call::Record& r) { r.convention.qk_l2norm = call::QkNorm::kNormPlusEps; }),
        RuleChange([](call::Record& r) { r.convention.gate_head = call::GateHead::kQK; }),
        RuleChange([](call::Record& r) { r.convention.head_map = call::HeadMap::kTiled; })}) {
    const testing::Judged found = judged(nothing, change);
    for (const chain::Finding& finding : found.findings) MESSAGE(finding.text);
    CHECK(found.findings.empty());
  }
  const testing::Judged before =
      judged(unit_rows, [](call::Record& r) { r.convention.qk_l2norm = call::QkNorm::kNone; });
  CHECK(before.findings.empty());
}

TEST_CASE("a value that comes back is said once") {
  Server server({.seed = 9});
  std::vector<chain::Call> calls;
  calls.push_back(server.serve_prompts());
  for (int i = 0; i < 6; ++i) {
    calls.push_back(testing::without_states(
        server.serve(Mode::kDecode, {{.request = 1, .slot = 3}, {.request = 2, .slot = 0}})));
    if (i % 2 == 1) calls.back().record.convention.scale = 0.5;
  }
  CHECK(testing::judge(calls, {.only_chain = true}).findings.size() == 1);
}

}  // namespace
