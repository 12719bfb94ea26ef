// SPDX-License-Identifier: Apache-2.0
//
// Calls in which numbers repeat, so that rounding errors add up by their amounts: honest kernels
// keep their budget there (budget/spread.hpp), and wrong ones leave it.
#include <doctest/doctest.h>

#include <string>

#include "fixtures/cases/case.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"

using namespace goldenrule;

namespace {

struct Repeats {
  std::string line;
  int period;          // of tokens; 0: none is like another
  double alpha, beta;  // of every token
  double early;        // multiplies v of the first half
  std::string contract;
  std::string coarser;  // what a kernel of this contract does is refused
};

// Beside each its largest ratio of error to budget while every rounding error was a fresh one.
const Repeats kRepeats[] = {
    // 3.9
    {"gdn mode=prefill lens=2048", 1, .999, .5, 1, "recurrent_f32", "chunk64_tf32"},
    // 7.7
    {"gdn mode=prefill lens=4096", 0, 1 - 0x1p-20, .001, 1, "recurrent_f32", "chunk64_tf32"},
    // 2.0
    {"gdn mode=prefill lens=2048", 2, .999, .5, 1, "chunk16_bf16_state", ""},
    // 7.1
    {"gdn mode=prefill lens=1024", 1, 1, .5, 1e4, "chunk64_bf16_direct", "chunk16_bf16_state"},
    // 3.5
    {"kda mode=prefill lens=2048", 1, .999, .5, 1, "recurrent_f32", "chunk64_tf32"},
};

call::Record call_of(const Repeats& r) {
  call::Record record = cases::make_record(
      cases::parse("op=" + r.line + " H=1 HV=1 K=32 V=8 gate=linear beta=direct h0=1"));
  const std::int64_t tokens = record.inputs.at("beta").size();
  for (const char* name : {"q", "k", "v"}) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; r.period > 0 && i < x.size(); ++i) {
      x.set(i, x[i % (x.size() / tokens * r.period)]);
    }
  }
  const auto fill = [&](const char* name, double value) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, value);
  };
  fill("g", r.alpha);
  fill("beta", r.beta);
  call::Tensor& v = record.inputs.at("v");
  for (std::int64_t i = 0; i < v.size() / 2; ++i) v.set(i, v[i] * r.early);
  return record;
}

verdict::CaseReport judged(const call::Record& record, const contract::Contract& contract) {
  return verdict::judge_record(delta::slice(), record, {.contract = contract});
}

// An emulated kernel of the contract keeps its budget in every tensor.
void check_honest(call::Record& record, const contract::Contract& contract, std::uint64_t seed) {
  record.outputs = delta::emulate(record, contract, seed);
  for (const verdict::TensorReport& tensor : judged(record, contract).tensors) {
    CAPTURE(tensor.name);
    CHECK(tensor.max_ratio <= 1);
    CHECK(tensor.out_of_budget == 0);
  }
}

}  // namespace

TEST_CASE("honest kernels keep their budget where numbers repeat") {
  for (const Repeats& r : kRepeats) {
    CAPTURE(r.line);
    CAPTURE(r.contract);
    const contract::Contract& contract = contract::find_contract(r.contract);
    call::Record record = call_of(r);
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      CAPTURE(seed);
      check_honest(record, contract, seed);
    }
  }
}

TEST_CASE("coarser kernels do not, where numbers repeat") {
  for (const Repeats& r : kRepeats) {
    if (r.coarser.empty()) continue;
    CAPTURE(r.line);
    CAPTURE(r.coarser);
    call::Record record = call_of(r);
    record.outputs = delta::emulate(record, contract::find_contract(r.coarser), 1);
    const verdict::CaseReport report = judged(record, contract::find_contract(r.contract));
    CHECK(report.verdict == verdict::Verdict::kOutOfBudget);
  }
}

// Behind the hard gate the cumulated one has few bits left, and loses the same ones of equal gates.
TEST_CASE("honest kernels keep their budget behind a hard gate") {
  const contract::Contract& contract = contract::find_contract("chunk64_f32");
  call::Record record = cases::make_record(cases::parse(
      "op=kda mode=prefill lens=70 H=1 HV=2 K=64 V=16 io=f32 gate=log h0=1 pattern=Dhard"));
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    record.outputs = delta::emulate(record, contract, seed);
    CHECK(judged(record, contract).verdict == verdict::Verdict::kWithinBudget);
  }
}

namespace {

// 124 pending tokens that are alike. Without a decay each moves the state by less than its last
// bits, so that fp32 loses all of them.
call::Record ring_of_repeats(const std::string& op) {
  call::Record record = cases::make_record(cases::parse(
      "op=" + op + " mode=mtp B=2 T=4 H=1 HV=1 K=32 V=8 ring=f32 io=f32 window=128 gate=none"));
  const auto fill = [&](const char* name, double value) {
    call::Tensor& x = record.inputs.at(name);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, value);
  };
  fill("ring_count", 124);
  fill("ring_flush", 1);
  const auto repeat = [&](const char* name, double size) {
    call::Tensor& x = record.inputs.at(name);
    const std::int64_t width = x.shape()[3];
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const std::int64_t ring = i / (128 * width);
      const bool first = i % (128 * width) < width;
      x.set(i, first ? size * x[i] : x[ring * 128 * width + i % width]);
    }
  };
  repeat("initial_ring_d", 6e-7);
  repeat("initial_ring_k", 1);
  return record;
}

}  // namespace

// The largest ratio was 1.23 while the roundings of replayed tokens were taken for fresh ones.
TEST_CASE("honest kernels keep their budget where the tokens of a ring repeat") {
  for (const char* op : {"gdn", "kda"}) {
    CAPTURE(op);
    call::Record record = ring_of_repeats(op);
    for (const char* name : {"recurrent_f32", "chunk64_f32", "replay_bf16"}) {
      CAPTURE(name);
      const contract::Contract& contract = contract::find_contract(name);
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(seed);
        check_honest(record, contract, seed);
      }
    }
    record.outputs = delta::emulate(record, contract::find_contract("replay_bf16"), 1);
    CHECK(judged(record, contract::find_contract("recurrent_f32")).verdict ==
          verdict::Verdict::kOutOfBudget);
  }
}
