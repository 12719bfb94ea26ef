// SPDX-License-Identifier: Apache-2.0
//
// Captures that were recorded in a wider type than the kernel's.
#include "fixtures/call/widening.hpp"

#include <cmath>

#include "tests/call/support.hpp"

namespace goldenrule::call::test {
namespace {

Tensor filled(DType dtype, const Shape& shape, double step) {
  Tensor t(dtype, shape);
  for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, 1.0 + step * static_cast<double>(i % 7));
  return t;
}

struct Steps {
  double v, o, initial, final;
};

// The types of o, final_state and initial_state of what `type` records, where values lie `steps`
// apart: 2^-7 fits bf16, 2^-10 fp16, 2^-20 neither.
std::vector<DType> types(DType type, const Steps& steps) {
  Record record;
  const Shape tokens{2, 1, 1, 8};
  const Shape states{2, 1, 8, 8};
  record.inputs["v"] = filled(type, tokens, steps.v);
  record.inputs["initial_state"] = filled(type, states, steps.initial);
  record.outputs["o"] = filled(type, tokens, steps.o);
  record.outputs["final_state"] = filled(type, states, steps.final);
  const Record before = record;
  undo_widening(record);
  for (const auto& [name, t] : before.outputs) {
    CHECK(record.outputs.at(name).to_doubles() == t.to_doubles());
  }
  return {record.outputs.at("o").dtype(), record.outputs.at("final_state").dtype(),
          record.inputs.at("initial_state").dtype()};
}

constexpr double kBF16 = 0x1p-7, kF16 = 0x1p-10, kF32 = 0x1p-20, kF64 = 0x1p-40;

TEST_CASE("widening: outputs get the type back that holds them and their inputs") {
  using Types = std::vector<DType>;
  for (const DType wide : {DType::kF32, DType::kF64}) {
    CHECK(types(wide, {kBF16, kBF16, kF32, kF32}) == Types{DType::kBF16, DType::kF32, DType::kF32});
    CHECK(types(wide, {kF16, kF16, kBF16, kBF16}) ==
          Types{DType::kF16, DType::kBF16, DType::kBF16});
    // An output of bf16 numbers where the inputs are finer was rounded by mistake.
    CHECK(types(wide, {kF32, kBF16, kF32, kBF16}) == Types{DType::kF32, DType::kF32, DType::kF32});
    // One finer number, and it was not stored in bf16.
    CHECK(types(wide, {kBF16, kF32, kBF16, kF32}) == Types{DType::kF32, DType::kF32, DType::kF32});
  }
  CHECK(types(DType::kF64, {kF64, kF64, kF64, kF32}) ==
        Types{DType::kF64, DType::kF64, DType::kF64});
  // fp16 that is rounded through bf16 stays fp16.
  CHECK(types(DType::kF16, {kBF16, kBF16, kBF16, kBF16}) ==
        Types{DType::kF16, DType::kF16, DType::kF16});
}

TEST_CASE("widening: tensors of 16 bits are what they say") {
  const auto o_type = [](DType v, double v_step, DType o, double o_step) {
    Record record;
    record.inputs["v"] = filled(v, {2, 1, 1, 8}, v_step);
    record.outputs["o"] = filled(o, {2, 1, 1, 8}, o_step);
    undo_widening(record);
    return record.outputs.at("o").dtype();
  };
  // bf16 would hold all the numbers, but v says that this kernel stores fp16; and the reverse.
  CHECK(o_type(DType::kF16, kBF16, DType::kF32, kBF16) == DType::kF16);
  CHECK(o_type(DType::kBF16, kBF16, DType::kF32, kBF16) == DType::kBF16);
  // An output is never widened to the type of the inputs.
  CHECK(o_type(DType::kF32, kF32, DType::kF16, kF16) == DType::kF16);
  CHECK(o_type(DType::kF32, kF32, DType::kBF16, kBF16) == DType::kBF16);
}

TEST_CASE("widening: a ring has the type of what it was before the call") {
  using Types = std::vector<DType>;
  const auto ring_types = [](const Tensor& before, double step) {
    Record record;
    record.inputs["v"] = filled(DType::kF32, {2, 1, 1, 8}, kF32);
    record.inputs["initial_ring_d"] = before;
    record.outputs["ring_d"] = filled(DType::kF32, {2, 1, 4, 8}, step);
    undo_widening(record);
    return Types{record.outputs.at("ring_d").dtype(), record.inputs.at("initial_ring_d").dtype()};
  };
  const Shape rings{2, 1, 4, 8};
  CHECK(ring_types(filled(DType::kF32, rings, kBF16), kBF16) == Types{DType::kBF16, DType::kBF16});
  CHECK(ring_types(filled(DType::kBF16, rings, kBF16), kBF16) == Types{DType::kBF16, DType::kBF16});
  // Rounded by mistake; not stored in bf16; and a ring of zeros says nothing.
  CHECK(ring_types(filled(DType::kF32, rings, kF32), kBF16) == Types{DType::kF32, DType::kF32});
  CHECK(ring_types(filled(DType::kF32, rings, kBF16), kF32) == Types{DType::kF32, DType::kF32});
  CHECK(ring_types(Tensor(DType::kF32, rings), kBF16) == Types{DType::kF32, DType::kF32});
}

TEST_CASE("widening: what a kernel did not write has no type of its own") {
  Record record;
  record.inputs["v"] = filled(DType::kBF16, {2, 1, 1, 8}, kBF16);
  record.outputs["o"] = filled(DType::kF32, {2, 1, 1, 8}, kBF16);
  record.outputs["o"].set(3, std::nan(""));
  undo_widening(record);
  CHECK(record.outputs.at("o").dtype() == DType::kBF16);
  // Without an initial state nothing says what states are stored in.
  record.outputs["final_state"] = filled(DType::kF32, {2, 1, 8, 8}, kBF16);
  undo_widening(record);
  CHECK(record.outputs.at("final_state").dtype() == DType::kF32);
}

}  // namespace
}  // namespace goldenrule::call::test
