// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/contract/contract_json.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/emulation/segments.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/rule/recurrent.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/contract_refusal.hpp"

using namespace goldenrule;

namespace {

double relative_error(const delta::Matrix<double>& a, const delta::Matrix<double>& b) {
  return (a - b).norm() / b.norm();
}

// chunk64_bf16_direct_segments with chunks and segments that a test can afford.
contract::Contract small_contract(std::int64_t segment) {
  contract::Contract c = contract::parse_contract(
      R"({"name":"small","base":"chunk64_bf16_direct_segments","chunk":16,"segment":64})", "small");
  std::get<contract::Chunked>(c.model).segment = segment;
  return c;
}

verdict::Verdict verdict_of_state(const call::Record& record, const contract::Contract& contract) {
  for (const verdict::TensorReport& tensor :
       verdict::judge_record(delta::slice(), record, {.contract = contract}).tensors) {
    if (tensor.name == "final_state") return tensor.verdict;
  }
  return verdict::Verdict::kSkipped;
}

// Identical keys that overwrite what they find; the first values are `large`.
call::Record erasing_call(double large) {
  call::Record record = cases::make_record(cases::parse(
      "op=gdn mode=prefill lens=256 H=1 HV=1 K=32 V=16 gate=linear beta=direct h0=1 io=f32"));
  call::Tensor& k = record.inputs.at("k");
  for (std::int64_t i = 0; i < k.size(); ++i) k.set(i, k[i % 32]);
  call::Tensor& v = record.inputs.at("v");
  for (std::int64_t i = 0; i < v.size() / 2; ++i) v.set(i, v[i] * large);
  call::Tensor& gate = record.inputs.at("g");
  for (std::int64_t i = 0; i < gate.size(); ++i) gate.set(i, 1.0);
  call::Tensor& beta = record.inputs.at("beta");
  for (std::int64_t i = 0; i < beta.size(); ++i) beta.set(i, 0.3 + 0.4 * beta[i]);
  return record;
}

}  // namespace

TEST_CASE("segments fold to the walk through the whole sequence") {
  for (const char* line :
       {"op=gdn mode=prefill lens=150 H=1 HV=1 K=32 V=24 gate=log h0=1",
        "op=gdn mode=prefill lens=128 H=1 HV=1 K=16 V=24 gate=log h0=1 pattern=B999",
        "op=kda mode=prefill lens=100 H=1 HV=1 K=32 V=8 gate=linear beta=direct h0=1"}) {
    CAPTURE(line);
    const call::Record record = cases::make_record(cases::parse(line));
    const call::Plan plan = call::make_plan(record, false);
    const delta::CallInputs inputs(record);
    const delta::OutputIndex index(record, plan.dims);
    const call::Sequence& s = plan.sequences.front();
    const auto lane =
        delta::prepare_lane<double>(record, plan.dims, inputs, s.first_token, s.token_count, 0);
    const auto v = delta::lane_values(inputs, plan.dims, index, s, 0);
    const auto start = delta::lane_start(inputs, plan.dims, index, s, 0);
    const auto whole = delta::recurrent_form<double>(lane, v, start);
    int rounded = 0;
    const auto cut = delta::run_in_segments<double>(
        lane, v, start, 32,
        [](const auto&... piece) { return delta::recurrent_form<double>(piece...); },
        [&](const delta::Matrix<double>&) { ++rounded; });
    // The fold ends in fp32: 2^-24 of a state for each of the few segments.
    CHECK(relative_error(cut.o, whole.o) < 1e-6);
    CHECK(relative_error(cut.state, whole.state) < 1e-6);
    CHECK(relative_error(cut.o, whole.o) > 0);
    // Neither the first segment nor the last has a map.
    CHECK(rounded == 2 * ((lane.tokens - 1) / 32 - 1));
  }
}

TEST_CASE("what a segment erases leaves an error, and only a contract of segments grants it") {
  const contract::Contract cut = small_contract(64), whole = small_contract(0);
  const call::Record call = erasing_call(3e3);
  int beyond = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    call::Record record = call;
    record.outputs = delta::emulate(call, cut, seed);
    CHECK(verdict_of_state(record, cut) == verdict::Verdict::kWithinBudget);
    beyond += verdict_of_state(record, whole) == verdict::Verdict::kOutOfBudget ? 1 : 0;
    record.outputs = delta::emulate(call, whole, seed);
    CHECK(verdict_of_state(record, whole) == verdict::Verdict::kWithinBudget);
  }
  CHECK(beyond >= 1);
  CHECK(beyond < 8);  // a kernel may cut, and need not
}

TEST_CASE("segments of a contract are read, printed and refused") {
  const contract::Contract& c = contract::find_contract("chunk64_bf16_direct_segments");
  CHECK(c.chunked()->segment == 512);
  contract::Contract again = c;
  again.name = "again";
  CHECK(contract::parse_contract(contract::to_json(again), "x").chunked()->segment == 512);
  CHECK(contract::is_no_wider(contract::find_contract("chunk64_bf16_direct"), c));
  CHECK_FALSE(contract::is_no_wider(c, contract::find_contract("chunk64_bf16_direct")));
  CHECK(test::refusal(R"({"name":"c","base":"chunk64_bf16","segment":100})") ==
        "c.json: segment: expected a multiple of the chunk, 64, actual 100");
  CHECK(test::refusal(R"({"name":"c","base":"recurrent_f32","segment":64})") ==
        "c.json: segment: expected none in a contract of kind recurrent, actual 64");
  CHECK(test::refusal(R"({"name":"c","base":"chunk64_bf16","segment":-64})") ==
        "c.json: segment: expected 0 to 1048576 tokens, actual -64");
}
