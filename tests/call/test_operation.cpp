// SPDX-License-Identifier: Apache-2.0
//
// The table of tensors against the shapes that records are built with here by hand, and selection
// along an axis against indexing.
#include <doctest/doctest.h>

#include <set>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

Shape shape_in(const Record& record, Group group, const char* name) {
  const TensorRow* row = find_row(record, group, name);
  REQUIRE(row != nullptr);
  return shape_of(record, validate(record), *row);
}

Tensor counted(const Shape& shape, DType dtype) {
  Tensor t(dtype, shape);
  for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, static_cast<double>(i));
  return t;
}

}  // namespace

TEST_CASE("operation: every input of a call has the shape of its row") {
  for (const Op op : {Op::kGatedDeltaRule, Op::kKda}) {
    for (const Record& record : {decode(op), mtp(op), prefill(op)}) {
      const Dims dims = validate(record);
      std::size_t visited = 0;
      for_each_input(record, dims, [&](const TensorRow& row, const auto& axes, const Tensor& t) {
        INFO(row.name);
        CHECK(axes.size() == t.shape().size());
        CHECK(row.presence(record) != Presence::kAbsent);
        ++visited;
      });
      CHECK(visited == record.inputs.size());
    }
  }
}

TEST_CASE("operation: axes follow mode and conventions") {
  Record r = mtp(Op::kKda);
  CHECK(shape_in(r, Group::kOutput, "o") == Shape{kRows, kT, kHV, kV});
  CHECK(shape_in(r, Group::kOutput, "final_state") == Shape{kSlots, kHV, kV, kK});
  CHECK(shape_in(r, Group::kOutput, "intermediate_states") == Shape{kRows, kT, kHV, kV, kK});
  CHECK(shape_in(r, Group::kInput, "ssm_state_indices") == Shape{kRows, kT});
  CHECK(shape_in(r, Group::kInput, "g") == Shape{kRows, kT, kHV, kK});
  CHECK(shape_in(mtp(), Group::kInput, "g") == Shape{kRows, kT, kHV});
  CHECK(shape_in(prefill(), Group::kInput, "cu_seqlens") == Shape{4});
  CHECK(shape_in(prefill(), Group::kInput, "initial_state") == Shape{3, kHV, kV, kK});
  CHECK(shape_in(prefill(), Group::kOutput, "o") == Shape{8, kHV, kV});
  CHECK(gate_channels(mtp(Op::kKda), kK) == kK);
  CHECK(gate_channels(mtp(), kK) == 1);

  r.convention.state_layout = StateLayout::kKV;
  r.inputs["initial_state"] = floats({kSlots, kHV, kK, kV});
  CHECK(shape_in(r, Group::kOutput, "final_state") == Shape{kSlots, kHV, kK, kV});
  r.convention.gate_head = GateHead::kQK;
  r.inputs["A_log"] = floats({kH});
  r.inputs["dt_bias"] = floats({kH, kK});
  CHECK(shape_in(r, Group::kInput, "dt_bias") == Shape{kH, kK});
  r.convention.gate = Gate::kNone;
  CHECK(gate_channels(r, kK) == 1);
  CHECK(find_row(r, Group::kInput, "o") == nullptr);
  CHECK(find_row(r, Group::kOutput, "q") == nullptr);
}

TEST_CASE("operation: names and rows are unique") {
  for (const Operation& operation : operations()) {
    std::set<std::pair<Group, std::string_view>> names;
    for (const TensorRow& row : operation.tensors) {
      CHECK(names.emplace(row.group, row.name).second);
      CHECK_FALSE(row.present.empty());
    }
  }
}

TEST_CASE("operation: inputs that nobody reads are visited where they fit") {
  Record r = mtp();
  r.inputs["g"] = floats({kRows, kT, kHV});         // the gate is softplus
  r.inputs["beta"] = floats({kRows, kT, kHV + 1});  // beta is sigmoid, and this of another call
  const Dims dims = validate(r);
  std::set<std::string> seen;
  for_each_input(r, dims,
                 [&](const TensorRow& row, const auto&, const Tensor&) { seen.emplace(row.name); });
  CHECK(seen.contains("g"));
  CHECK_FALSE(seen.contains("beta"));
}

TEST_CASE("take: index i of the result is index indices[i] of what is given") {
  const Shape shape{3, 4, 5};
  const std::vector<std::int64_t> indices{2, 0, 2, 1};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kI32}) {
    const Tensor t = counted(shape, dtype);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const Tensor taken = take(t, axis, indices);
      const std::vector<double> values = take(t.to_doubles(), shape, axis, indices);
      REQUIRE(taken.shape()[axis] == 4);
      REQUIRE(std::ssize(values) == taken.size());
      for (std::int64_t i = 0; i < taken.size(); ++i) {
        Shape from = unravel(taken.shape(), i);
        from[axis] = indices[static_cast<std::size_t>(from[axis])];
        const std::int64_t flat = (from[0] * 4 + from[1]) * 5 + from[2];
        CHECK(taken[i] == t[flat]);
        CHECK(values[static_cast<std::size_t>(i)] == t[flat]);
      }
    }
  }
  CHECK(take(counted(shape, DType::kF32), 1, {}).size() == 0);
  CHECK(take(Tensor(DType::kF32, {2, 0, 3}), 0, indices).shape() == Shape{4, 0, 3});
}

TEST_CASE("take: leading axes are joined and parted without moving an element") {
  const Tensor t = counted({2, 3, 4}, DType::kF32);
  const Tensor joined = with_leading(t, 2, {6});
  CHECK(joined.shape() == Shape{6, 4});
  CHECK(with_leading(joined, 1, {2, 3}).shape() == t.shape());
  CHECK(joined.to_doubles() == t.to_doubles());
  check_refused(
      [&] {
        (void)reshaped(t, {5, 5});
      },
      {ErrorKind::kShape, "tensor", "[2,3,4] in another shape", "[5,5]"});
}
