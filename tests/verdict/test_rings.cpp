// SPDX-License-Identifier: Apache-2.0
//
// What stands in rings of pending tokens at the edges of its definition: logarithms of gates that
// have none, gates whose alpha underflows, NaN at places that nobody reads, and flushes of nothing.
#include <cmath>

#include "fixtures/call/plan.hpp"
#include "reference/delta/rule/lane.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using namespace goldenrule::verdict::test;
using call::DType;

namespace {

// A call with right outputs after `change` was made to its inputs.
struct Changed {
  call::Record record;
  const contract::Contract& contract;
  Expectations expected;

  template <class F>
  Changed(const std::string& line, const char* contract_name, F&& change)
      : record(changed(record_of(line), change)),
        contract(contract::find_contract(contract_name)),
        expected(expect(record, contract)) {
    set_right_outputs(record, expected, DType::kF32);
  }

  [[nodiscard]] TensorReport judge(const std::string& name) const {
    return verdict::judge(name, record.outputs.at(name), expected.outputs.at(name), contract);
  }

  // Where ring_g has token t of the call, of the first head of a row.
  [[nodiscard]] std::int64_t gate_at(std::int64_t row, std::int64_t t) const {
    const call::Plan plan = call::make_plan(record, false);
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(row)];
    return delta::RingIndex(record, plan.dims)
        .g(s.replay.ring, 0, s.replay.place(s.replay.count + t));
  }

 private:
  template <class F>
  static call::Record changed(call::Record r, F&& change) {
    change(r);
    return r;
  }
};

void set_all(call::Tensor& tensor, double x) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, x);
}

}  // namespace

TEST_CASE("rings: a linear gate below 2^-126 has no logarithm to keep, all others are judged") {
  for (const char* line :
       {"op=gdn mode=mtp B=1 T=4 H=1 HV=1 K=8 V=6 ring=f32 io=f32 window=6 gate=linear",
        "op=kda mode=mtp B=1 T=4 H=1 HV=1 K=8 V=6 ring=f32 io=f32 window=6 gate=linear"}) {
    CAPTURE(line);
    const std::int64_t channels = record_of(line).inputs.at("g").size() / 4;
    Changed call(line, "recurrent_f32", [&](call::Record& r) {
      call::Tensor& g = r.inputs.at("g");
      for (const auto& [t, x] : {std::pair{0, -0.5}, {1, 0.0}, {2, 0x1p-127}, {3, 0x1p-126}}) {
        g.set(t * channels, x);
      }
    });
    call::Tensor& ring = call.record.outputs.at("ring_g");
    for (const double anything : {kNaN, -kInf, kInf, -80.0, 3.0}) {
      CAPTURE(anything);
      for (std::int64_t t = 0; t < 3; ++t) ring.set(call.gate_at(0, t), anything);
      const TensorReport report = call.judge("ring_g");
      CHECK(report.verdict == Verdict::kExact);
      CHECK(report.undefined == 3);
      CHECK(report.compared == report.shape[0] * 6 * channels - 3);
    }
    CHECK(ring[call.gate_at(0, 3)] == doctest::Approx(-126 * std::log(2.0)));
    for (const double wrong : {kNaN, -kInf, -88.0}) {
      CAPTURE(wrong);
      ring.set(call.gate_at(0, 3), wrong);
      CHECK(call.judge("ring_g").out_of_budget == 1);
    }
    // What the call itself does with such a gate is defined.
    for (const char* name : {"o", "ring_d", "ring_k"}) {
      CAPTURE(name);
      CHECK(call.judge(name).verdict == Verdict::kExact);
      call.record.outputs.at(name).set(0, kNaN);
      CHECK_FALSE(is_pass(call.judge(name).verdict));
    }
  }
}

// With exp(A_log) = 119,000 alpha is 0 in every type, and the roundings of 1 + exp(x), which cost
// softplus 2^-24, move log alpha by .007: many times what the products with it cost.
TEST_CASE("rings: log alpha has the errors of softplus where alpha underflows, and no more") {
  constexpr float kAmplitude = 119000.0F;
  constexpr float kInputs[] = {-5.0F, -4.7F, -4.3F, -3.9F};
  for (const char* contract : {"recurrent_f32", "replay_bf16"}) {
    CAPTURE(contract);
    Changed call("op=gdn mode=mtp B=1 T=4 H=1 HV=1 K=8 V=6 ring=f32 io=f32 window=6", contract,
                 [&](call::Record& r) {
                   r.inputs.at("A_log").set(0, static_cast<double>(std::log(kAmplitude)));
                   r.inputs.at("dt_bias").set(0, 0.0);
                   for (std::int64_t t = 0; t < 4; ++t) {
                     r.inputs.at("a").set(t, static_cast<double>(kInputs[t]));
                   }
                 });
    call::Tensor& ring = call.record.outputs.at("ring_g");
    const auto a_log = static_cast<float>(call.record.inputs.at("A_log")[0]);
    double largest = 0.0;
    for (std::int64_t t = 0; t < 4; ++t) {
      const std::int64_t at = call.gate_at(0, t);
      const double exact = ring[at];
      REQUIRE(std::exp(exact) == 0.0);
      const float kernel = -std::exp(a_log) * std::log(1.0F + std::exp(kInputs[t]));
      largest = std::max(largest, std::fabs(static_cast<double>(kernel) - exact));
      ring.set(at, static_cast<double>(kernel));
    }
    CHECK(largest > 1e-3);  // the case is one
    CHECK(is_pass(call.judge("ring_g").verdict));
    const double off = 0x1p-21 * static_cast<double>(kAmplitude);
    ring.set(call.gate_at(0, 3), ring[call.gate_at(0, 3)] - 2 * off);
    CHECK(call.judge("ring_g").out_of_budget == 1);
  }
}

TEST_CASE("rings: places that are not pending are not read, whatever they hold") {
  const char* line =
      "op=kda mode=mtp B=3 T=3 H=1 HV=2 K=8 V=6 slots=permuted ring=f32 io=f32 window=7";
  const Changed clean(line, "replay_bf16", [](call::Record&) {});
  const Changed spoiled(line, "replay_bf16", [](call::Record& r) {
    const call::Plan plan = call::make_plan(r, false);
    for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g"}) {
      call::Tensor& ring = r.inputs.at(name);
      const call::Tensor before = ring;
      set_all(ring, kNaN);
      const call::Shape& shape = ring.shape();
      const std::int64_t width = ring.size() / (shape[0] * shape[1] * shape[2]);
      for (const call::Sequence& s : plan.sequences) {
        for (std::int64_t t = 0; t < s.replay.count; ++t) {
          for (std::int64_t h = 0; h < shape[1]; ++h) {
            const std::int64_t at =
                ((s.replay.ring * shape[1] + h) * shape[2] + s.replay.place(t)) * width;
            for (std::int64_t i = at; i < at + width; ++i) ring.set(i, before[i]);
          }
        }
      }
    }
  });
  for (const char* name : {"o", "final_state"}) {
    CAPTURE(name);
    CHECK(clean.expected.outputs.at(name).exact.golden ==
          spoiled.expected.outputs.at(name).exact.golden);
    CHECK(clean.expected.outputs.at(name).grant.spread ==
          spoiled.expected.outputs.at(name).grant.spread);
  }
  for (const char* name : {"ring_d", "ring_k", "ring_g"}) {
    CAPTURE(name);
    const Exact& a = clean.expected.outputs.at(name).exact;
    const Exact& b = spoiled.expected.outputs.at(name).exact;
    std::int64_t written = 0;
    for (std::size_t i = 0; i < a.golden.size(); ++i) {
      if (a.touched[i / a.block] != Touch::kComputed) continue;
      CHECK(a.golden[i] == b.golden[i]);
      ++written;
    }
    CHECK(written > 0);
    CHECK(spoiled.judge(name).nonfinite > 0);
    CHECK(is_pass(spoiled.judge(name).verdict));
  }
}

TEST_CASE("rings: a flush of nothing leaves the state as it was, to the last bit") {
  Changed call("op=gdn mode=mtp B=2 T=3 H=1 HV=1 K=8 V=6 slots=permuted ring=io window=5",
               "replay_bf16", [](call::Record& r) {
                 set_all(r.inputs.at("ring_count"), 0.0);
                 set_all(r.inputs.at("ring_flush"), 1.0);
               });
  CHECK(call.expected.outputs.at("final_state").exact.golden ==
        call.record.inputs.at("initial_state").to_doubles());
  CHECK(call.judge("final_state").verdict == Verdict::kExact);
  call::Tensor& state = call.record.outputs.at("final_state");
  const auto slot = static_cast<std::int64_t>(call.record.inputs.at("state_indices")[0]);
  const auto before = static_cast<float>(state[slot * 48]);
  state.set(slot * 48, static_cast<double>(std::nextafter(before, 2 * before)));
  CHECK(call.judge("final_state").out_of_budget == 1);
}

TEST_CASE("rings: of a call without a gate ring_g holds zeros, the logarithms of 1") {
  Changed call("op=gdn mode=mtp B=2 T=3 H=1 HV=1 K=8 V=6 slots=permuted ring=f32 io=f32 gate=none",
               "recurrent_f32", [](call::Record&) {});
  CHECK(call.judge("ring_g").verdict == Verdict::kExact);
  call.record.outputs.at("ring_g").set(call.gate_at(1, 0), 1e-3);
  CHECK(call.judge("ring_g").out_of_budget == 1);
  for (const char* name : {"o", "ring_d", "ring_k"}) {
    CAPTURE(name);
    CHECK(call.judge(name).verdict == Verdict::kExact);
  }
}
