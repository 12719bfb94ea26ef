// SPDX-License-Identifier: Apache-2.0
//
// Inputs that are not finite beside results that are: an infinite logit of beta, a gate that
// erases, a NaN in one channel of a gate, a NaN in a later token of a chunk. Honest kernels pass,
// and what a NaN may cost a chunk is granted to that chunk alone.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/slice.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;
using verdict::Verdict;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

verdict::CaseReport judged_in_double(const call::Record& record,
                                     const contract::Contract& contract) {
  return verdict::judge_record(delta::slice(), record,
                               {.contract = contract, .precision = scalar::Precision::kDouble});
}

void emulated_pass(call::Record record, std::initializer_list<const char*> contracts) {
  for (const char* name : contracts) {
    CAPTURE(name);
    const contract::Contract& contract = contract::find_contract(name);
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      record.outputs = delta::emulate(record, contract, seed);
      const auto report = judged_in_double(record, contract);
      CHECK_MESSAGE(is_pass(report.verdict), report.reason);
    }
  }
}

// The elements of `name` that an honest kernel of `contract` may lose, as NaN.
std::int64_t lose(call::Record& record, const std::string& name,
                  const contract::Contract& contract) {
  const verdict::Expectations e =
      verdict::expect(delta::slice(), record, contract, scalar::Precision::kDouble);
  const verdict::Expected& output = e.outputs.at(name);
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < output.grant.overflows.size(); ++i) {
    if (!output.is_overflow(i, kNaN)) continue;
    record.outputs.at(name).set(static_cast<std::int64_t>(i), kNaN);
    ++lost;
  }
  return lost;
}

}  // namespace

TEST_CASE("infinite inputs: a logit of beta without end is a beta of 0 or 1") {
  for (const char* line : {"op=gdn mode=decode B=3 H=1 HV=2 K=16 V=8",
                           "op=kda mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 gate=bounded",
                           "op=gdn mode=prefill lens=70 H=1 HV=2 K=16 V=8 gate=log h0=1"}) {
    CAPTURE(line);
    for (const double b : {-kInf, kInf}) {
      CAPTURE(b);
      call::Record record = record_of(line);
      record.inputs.at("b").set(1, b);
      if (record.mode == call::Mode::kPrefill) {
        emulated_pass(record, {"recurrent_f32", "chunk64_f32", "chunk64_bf16"});
      } else {
        emulated_pass(record, {"recurrent_f32", "recurrent_f32_bf16_activations"});
      }
    }
  }
}

TEST_CASE("infinite inputs: a gate of -inf erases, whatever it is the logarithm to") {
  for (const char* gate : {"log", "log2"}) {
    CAPTURE(gate);
    call::Record record =
        record_of("op=kda mode=prefill lens=70 H=1 HV=2 K=16 V=8 h0=1 gate=" + std::string(gate));
    call::Tensor& g = record.inputs.at("g");
    constexpr std::int64_t kGates = 32;  // of a token
    for (std::int64_t i = 0; i < kGates; ++i) g.set(40 * kGates + i, -kInf);
    emulated_pass(record, {"recurrent_f32", "chunk64_f32"});
  }
}

TEST_CASE("infinite inputs: a NaN in one channel of a gate leaves the others in a ring") {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  for (const char* gate : {"bounded", "softplus"}) {
    CAPTURE(gate);
    call::Record record =
        record_of("op=kda mode=mtp B=2 T=3 H=1 HV=1 K=16 V=8 ring=f32 io=f32 window=8 gate=" +
                  std::string(gate));
    record.inputs.at("a").set(5, kNaN);  // of the first token
    record.outputs = delta::emulate(record, contract, 1);
    const auto report = judged_in_double(record, contract);
    CHECK_MESSAGE(is_pass(report.verdict), report.reason);
    for (const verdict::TensorReport& tensor : report.tensors) {
      if (tensor.name != "ring_g") continue;
      CHECK(tensor.nonfinite == 1);
      CHECK(tensor.unbounded == 0);
    }
  }
}

TEST_CASE("infinite inputs: a NaN costs a chunk its corrections and states on the way") {
  struct Row {
    const char *line, *output;
    std::int64_t token;  // of v
  };
  for (const Row& row :
       {Row{"op=gdn mode=mtp B=2 T=4 H=1 HV=2 K=16 V=8 ring=f32 io=f32 window=8 gate=log", "ring_d",
            3},
        Row{"op=gdn mode=prefill lens=100 H=1 HV=2 K=16 V=8 gate=log h0=1 checkpoints=before "
            "every=40",
            "checkpoints", 90}}) {
    CAPTURE(row.line);
    call::Record record = record_of(row.line);
    record.inputs.at("v").set(row.token * 2 * 8 + 3, kNaN);
    for (const char* name : {"chunk64_f32", "replay_bf16"}) {
      if (record.mode == call::Mode::kPrefill && std::string(name) == "replay_bf16") continue;
      CAPTURE(name);
      const contract::Contract& contract = contract::find_contract(name);
      record.outputs = delta::emulate(record, contract, 1);
      CHECK(is_pass(judged_in_double(record, contract).verdict));
      const std::int64_t lost = lose(record, row.output, contract);
      // Three tokens before that one, or the 16 rows of the state after 80 tokens of one chunk.
      CHECK(lost == (record.mode == call::Mode::kPrefill ? 16 : 3));
      CHECK(is_pass(judged_in_double(record, contract).verdict));
      const contract::Contract& in_order = contract::find_contract("recurrent_f32");
      CHECK(judged_in_double(record, in_order).verdict == Verdict::kOutOfBudget);
    }
  }
}
