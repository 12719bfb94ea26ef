// SPDX-License-Identifier: Apache-2.0
//
// With every switch in its right position the variants are the rule: what a switch changes is the
// mistake alone. The same holds for a kernel that is run on segments.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/calls/segments.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

// Largest difference, relative to the largest number of the tensor.
double distance(const call::Tensor& a, const call::Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  double largest = 0.0;
  double difference = 0.0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isnan(a[i]) == std::isnan(b[i]));
    if (std::isnan(a[i])) continue;
    largest = std::max(largest, std::fabs(b[i]));
    difference = std::max(difference, std::fabs(a[i] - b[i]));
  }
  return largest == 0.0 ? difference : difference / largest;
}

void check_same(const call::TensorMap& a, const call::TensorMap& b, double bound) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : b) {
    CAPTURE(name);
    CHECK(distance(a.at(name), tensor) <= bound);
  }
}

constexpr const char* kPrefills[] = {
    "op=gdn mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K=32 V=24 gate=log h0=1",
    "op=kda mode=prefill lens=63,64,65,1,0,130 H=1 HV=2 K=32 V=24 gate=bounded state_layout=kv",
    "op=kda mode=prefill lens=70,9 H=1 HV=2 K=16 V=8 gate=linear pattern=Derase h0=1",
    "op=gdn mode=prefill lens=70,9 H=1 HV=2 K=16 V=8 gate=none beta=direct",
};
constexpr const char* kPools[] = {
    "op=kda mode=decode B=5 H=2 HV=4 K=16 V=8 slots=padded",
    "op=gdn mode=decode B=5 H=2 HV=4 K=16 V=8 slots=separate_padded state_layout=kv",
    "op=gdn mode=mtp B=5 T=4 H=1 HV=2 K=16 V=8 slots=padded accepted=mixed",
    "op=kda mode=mtp B=5 T=4 H=1 HV=2 K=16 V=8 slots=scatter_padded",
    "op=kda mode=mtp B=3 T=4 H=1 HV=2 K=16 V=8 disable_state_update=1",
};

// Both sides are double arithmetic on at most 130 contracting steps of at most 32 terms.
constexpr double kRounding = 1e-12;

}  // namespace

TEST_CASE("the step variant without a mistake is the oracle") {
  for (const char* line : kPrefills) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    check_same(delta::run_lanes(record, delta::step_variant({})),
               verdict::exact_outputs(delta::slice(), record), kRounding);
  }
  for (const char* line : kPools) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    check_same(delta::run_lanes(record, delta::step_variant({})),
               verdict::exact_outputs(delta::slice(), record), kRounding);
  }
}

TEST_CASE("the chunk variant without a mistake is the oracle, in chunks of any size") {
  for (const char* line : kPrefills) {
    for (const std::int64_t chunk : {16, 64}) {
      CAPTURE(line);
      CAPTURE(chunk);
      const call::Record record = record_of(line);
      check_same(delta::run_lanes(record, delta::chunk_variant({.chunk = chunk})),
                 verdict::exact_outputs(delta::slice(), record), kRounding);
    }
  }
}

// The Neumann product of 16 x 16 is complete, so for small <k, k'> its rounding is all that is
// left: half an ulp of bf16 in T, fp16 before it.
TEST_CASE("the fp16 Neumann inverse is nearly right for keys without a common direction") {
  const call::Record record = record_of("op=gdn mode=prefill lens=48 H=1 HV=1 K=128 V=8 gate=log");
  const auto neumann = delta::run_lanes(
      record, delta::chunk_variant({.chunk = 16, .inverse = delta::Inverse::kNeumannFp16}));
  const double off =
      distance(neumann.at("o"), verdict::exact_outputs(delta::slice(), record).at("o"));
  CHECK(off > 1e-5);
  CHECK(off < 2e-2);
  const call::Record same =
      record_of("op=gdn mode=prefill lens=48 H=1 HV=1 K=128 V=8 gate=log pattern=B64");
  const auto collinear = delta::run_lanes(
      same, delta::chunk_variant({.chunk = 16, .inverse = delta::Inverse::kNeumannFp16}));
  CHECK(distance(collinear.at("o"), verdict::exact_outputs(delta::slice(), same).at("o")) >
        5 * off);
}

TEST_CASE("segments that are the sequences give the call back") {
  const call::Record record = record_of(kPrefills[0]);
  const call::Plan plan = call::make_plan(record, false);
  std::vector<calls::Segment> segments;
  for (const call::Sequence& s : plan.sequences) {
    segments.push_back({s.first_token, s.token_count, s.start_block});
  }
  check_same(calls::run_segments(record, verdict::exact_kernel(delta::slice()), segments),
             verdict::exact_outputs(delta::slice(), record), 0.0);
}

TEST_CASE("stored outputs have the types of the call and of the contract") {
  const call::Record record =
      record_of("op=gdn mode=prefill lens=5 H=1 HV=1 K=16 V=8 io=f16 gate=log");
  const auto& narrow = contract::find_contract("chunk16_bf16_state");
  const auto outputs =
      calls::stored(record, narrow, verdict::exact_outputs(delta::slice(), record));
  CHECK(outputs.at("o").dtype() == call::DType::kF16);
  CHECK(outputs.at("final_state").dtype() == call::DType::kBF16);
  const auto& ideal = contract::find_contract("ideal");
  CHECK(calls::stored(record, ideal, outputs).at("final_state").dtype() == call::DType::kF32);
}
