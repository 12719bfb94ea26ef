// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "fixtures/cases/case.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/chunk_f32_emulator.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/emulation/segments.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/verdict.hpp"

using namespace goldenrule;

namespace {

struct LaneInputs {
  delta::Lane<double> lane;
  delta::Matrix<double> v, start;
};

LaneInputs lane_of(const char* line) {
  const call::Record record = cases::make_record(cases::parse(line));
  const call::Plan plan = call::make_plan(record, false);
  const delta::CallInputs inputs(record);
  const delta::OutputIndex index(record, plan.dims);
  const call::Sequence& s = plan.sequences.front();
  return {delta::prepare_lane<double>(record, plan.dims, inputs, s.first_token, s.token_count, 0),
          delta::lane_values(inputs, plan.dims, index, s, 0),
          delta::lane_start(inputs, plan.dims, index, s, 0)};
}

// A chunked kernel in exact arithmetic: no contract may declare it, the emulator may be asked for
// it.
contract::Chunked exact_chunks(contract::Form form) { return {.chunk = 16, .form = form}; }

constexpr contract::Form kForms[] = {contract::Form::kWY, contract::Form::kDirect};

constexpr const char* kEmulatorLines[] = {
    "op=gdn mode=prefill lens=70 H=1 HV=1 K=32 V=24 gate=log h0=1",
    "op=kda mode=prefill lens=70 H=1 HV=1 K=32 V=24 gate=linear beta=direct h0=1 pattern=Derase",
    "op=gdn mode=prefill lens=33 H=1 HV=1 K=32 V=24 gate=log h0=1 pattern=B999"};

double relative(const delta::Matrix<double>& a, const delta::Matrix<double>& b) {
  return (a - b).norm() / b.norm();
}

}  // namespace

TEST_CASE("without rounding points the chunk emulator is the recurrence") {
  for (const contract::Form form : kForms) {
    const contract::Chunked exact = exact_chunks(form);
    for (const char* line : kEmulatorLines) {
      CAPTURE(line);
      const LaneInputs in = lane_of(line);
      delta::Rounder rounder(exact, delta::RoundingMode::kRandom, 1, 1);
      const auto emulated = delta::emulate_chunks(in.lane, in.v, in.start, exact, rounder);
      const auto recurrent = delta::recurrent_form<double>(in.lane, in.v, in.start);
      // Both are double computations of one function, some 10^3 operations deep: 2^-53 * 10^3.
      CHECK(relative(emulated.o, recurrent.o) < 1e-13);
      CHECK(relative(emulated.state, recurrent.state) < 1e-13);
    }
  }
}

TEST_CASE("the fp32 chunk kernel is the recurrence, to the last bits of fp32") {
  const contract::Contract& contract = contract::find_contract("chunk64_f32");
  const std::int64_t chunk = contract.chunked()->chunk;
  for (const char* line : kEmulatorLines) {
    CAPTURE(line);
    const LaneInputs in = lane_of(line);
    const auto recurrent = delta::recurrent_form<double>(in.lane, in.v, in.start);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      const auto kernel =
          delta::emulate_chunks_f32(in.lane, in.v, in.start, contract, chunk, seed, 1);
      // Some 10^3 operations deep, and functions that err by 2^-21: 2^-24 * 10^3 and more.
      CHECK(relative(kernel.o.cast<double>(), recurrent.o) < 1e-4);
      CHECK(relative(kernel.state.cast<double>(), recurrent.state) < 1e-4);
      CHECK(relative(kernel.o.cast<double>(), recurrent.o) > 1e-9);
    }
  }
}

TEST_CASE("each rounding point of a chunk contract changes the result, and only if declared") {
  const LaneInputs in = lane_of(kEmulatorLines[0]);
  const LaneInputs channels = lane_of(kEmulatorLines[1]);
  using contract::Activation;
  using contract::Point;
  for (std::size_t i = 0; i < contract::kPoints; ++i) {
    CAPTURE(contract::point_name(i));
    const auto activation = static_cast<Activation>(i);
    const auto point = static_cast<Point>(i);
    // beta and log alpha are those of the lane that the emulator is given (kernel_lane.hpp).
    if (activation == Activation::kBeta || activation == Activation::kGate) continue;
    const bool direct = point == Point::kKeyIn || point == Point::kResidual;
    contract::Chunked alone = exact_chunks(direct ? contract::Form::kDirect : contract::Form::kWY);
    alone.rounding[i] = contract::Format::kBF16;
    // q^ E and k^ E are rounded operands only where decays differ between channels.
    const bool per_channel = point == Point::kQueryIn || point == Point::kKeyIn;
    const LaneInputs& use = per_channel ? channels : in;
    delta::Rounder rounder(alone, delta::RoundingMode::kNearest, 1, 1);
    const auto rounded = delta::run_in_segments<double>(
        use.lane, use.v, use.start, point == Point::kSegmentMap ? 16 : use.lane.tokens,
        [&](const auto&... piece) { return delta::emulate_chunks(piece..., alone, rounder); },
        [&](delta::Matrix<double>& x) { rounder.apply(Point::kSegmentMap, x); });
    const auto recurrent = delta::recurrent_form<double>(use.lane, use.v, use.start);
    const double error =
        std::max(relative(rounded.o, recurrent.o), relative(rounded.state, recurrent.state));
    CHECK(error > 1e-6);
    CHECK(error < 0.1);
  }
}

TEST_CASE("random roundings repeat with their seed and differ without it") {
  const LaneInputs in = lane_of(kEmulatorLines[0]);
  const contract::Chunked& contract = *contract::find_contract("chunk64_bf16").chunked();
  const auto run = [&](std::uint64_t seed, std::uint64_t stream) {
    delta::Rounder rounder(contract, delta::RoundingMode::kRandom, seed, stream);
    return delta::emulate_chunks(in.lane, in.v, in.start, contract, rounder).o;
  };
  CHECK(run(1, 2) == run(1, 2));
  CHECK(run(1, 2) != run(2, 2));
  CHECK(run(1, 2) != run(1, 3));
}

TEST_CASE("an emulated kernel is judged right under its contract and wrong under a stricter one") {
  const struct {
    const char* line;
    const char* honest;
    const char* stricter;
  } rows[] = {
      {"op=gdn mode=prefill lens=70,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1", "chunk64_bf16",
       "recurrent_f32"},
      {"op=kda mode=prefill lens=70,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1",
       "chunk16_bf16_state", "recurrent_f32"},
      {"op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=64 V=32 io=f32 slots=padded", "recurrent_f32", "ideal"},
      {"op=kda mode=decode B=3 H=1 HV=2 K=64 V=32 io=f32", "recurrent_bf16_state", "recurrent_f32"},
      {"op=gdn mode=prefill lens=200,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1 pattern=production",
       "chunk64_f32", "ideal"},
      {"op=gdn mode=prefill lens=70,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1", "chunk64_tf32",
       "chunk64_f32"},
      {"op=gdn mode=prefill lens=70,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1",
       "chunk64_bf16_direct", "chunk64_f32"},
      {"op=kda mode=prefill lens=70,5 H=1 HV=2 K=64 V=32 io=f32 gate=log h0=1",
       "chunk32_bf16_direct", "chunk64_f32"},
      {"op=gdn mode=decode B=3 H=1 HV=2 K=64 V=32 io=f32", "recurrent_f32_bf16_activations",
       "recurrent_f32"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.line);
    call::Record record = cases::make_record(cases::parse(row.line));
    record.outputs = delta::emulate(record, contract::find_contract(row.honest), 7);
    CHECK(verdict::judge_record(delta::slice(), record,
                                {.contract = contract::find_contract(row.honest)})
              .verdict == verdict::Verdict::kWithinBudget);
    CHECK(verdict::judge_record(delta::slice(), record,
                                {.contract = contract::find_contract(row.stricter)})
              .verdict == verdict::Verdict::kOutOfBudget);
  }
}
