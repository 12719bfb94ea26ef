// SPDX-License-Identifier: Apache-2.0
//
// Results in another order, planted in emulated kernels by index arithmetic of this file.
#include <doctest/doctest.h>

#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// Element i of `tensor` becomes the one at index from(i) of the axis, all other indices alike.
void move(call::Tensor& tensor, std::size_t axis, std::int64_t (*from)(std::int64_t i)) {
  const call::Tensor before = tensor;
  std::int64_t stride = 1;
  for (std::size_t a = axis + 1; a < tensor.shape().size(); ++a) stride *= tensor.shape()[a];
  const std::int64_t extent = tensor.shape()[axis];
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t at = i / stride % extent;
    tensor.set(i, before[i + (from(at) - at) * stride]);
  }
}

std::string first_name(const Record& record, std::span<const Mistake> table) {
  const Diagnosis d = diagnosis_of(record, table);
  if (d.explanations.empty() || !d.explanations[0].explains) return "none";
  return d.explanations[0].name();
}

// The name of what was done to the output of an otherwise right kernel.
std::string named(const std::string& line, const char* output, std::size_t axis,
                  std::int64_t (*from)(std::int64_t i)) {
  Record record = capture_of(line, {});
  move(record.outputs.at(output), axis, from);
  return first_name(record, local_table());
}

const std::string kOne = "op=gdn mode=prefill lens=24 H=2 HV=4 K=16 V=8 gate=log h0=1";
const std::string kFour = "op=gdn mode=prefill lens=6x9 H=1 HV=2 K=16 V=8 gate=log h0=1";
const std::string kRows = "op=kda mode=mtp B=3 T=6 H=1 HV=3 K=16 V=8";

}  // namespace

TEST_CASE("every axis of every output: reversed") {
  CHECK(named(kOne, "o", 0, [](std::int64_t i) { return 23 - i; }) == "o is reversed along token");
  CHECK(named(kOne, "o", 1, [](std::int64_t i) { return 3 - i; }) == "o is reversed along head");
  CHECK(named(kOne, "o", 2, [](std::int64_t i) { return 7 - i; }) == "o is reversed along value");
  CHECK(named(kFour, "final_state", 0, [](std::int64_t i) { return 5 - i; }) ==
        "final_state is reversed along sequence");
  CHECK(named(kFour, "final_state", 2, [](std::int64_t i) { return 7 - i; }) ==
        "final_state is reversed along value");
  CHECK(named(kFour, "final_state", 3, [](std::int64_t i) { return 15 - i; }) ==
        "final_state is reversed along key");
  CHECK(named(kRows, "intermediate_states", 1, [](std::int64_t i) { return 5 - i; }) ==
        "intermediate_states is reversed along token");
  CHECK(named(kRows, "o", 0, [](std::int64_t i) { return 2 - i; }) == "o is reversed along row");
}

TEST_CASE("rolled, halves exchanged, parts in turn, two exchanged") {
  CHECK(named(kOne, "o", 0, [](std::int64_t i) { return (i + 23) % 24; }) ==
        "o is rolled by 1 along token");
  CHECK(named(kOne, "o", 0, [](std::int64_t i) { return (i + 3) % 24; }) ==
        "o is rolled by -3 along token");
  CHECK(named(kOne, "o", 2, [](std::int64_t i) { return i ^ 4; }) ==
        "o has its halves exchanged along value");
  CHECK(named(kOne, "o", 2, [](std::int64_t i) { return i % 2 * 4 + i / 2; }) ==
        "o takes its 2 parts in turn along value");
  CHECK(named(kOne, "final_state", 3, [](std::int64_t i) { return i % 8 * 2 + i / 8; }) ==
        "final_state takes its 8 parts in turn along key");
  CHECK(named(kOne, "o", 1, [](std::int64_t i) {
          return i == 1 ? 2 : i == 2 ? 1 : i;
        }) == "o has 1 and 2 exchanged along head");
  CHECK(named(kFour, "final_state", 0, [](std::int64_t i) {
          return i == 0 ? 4 : i == 4 ? 0 : i;
        }) == "final_state has 0 and 4 exchanged along sequence");
}

TEST_CASE("tokens of each sequence by its own length, states of a pool by the rows") {
  CHECK(named("op=gdn mode=prefill lens=5,7,1 H=1 HV=2 K=16 V=8 gate=log", "o", 0,
              [](std::int64_t i) {
                return i < 5 ? 4 - i : i < 12 ? 16 - i : i;
              }) == "o is reversed along token");
  const std::string pool = "op=gdn mode=decode B=5 H=1 HV=2 K=16 V=8 slots=permuted";
  Record record = capture_of(pool, {});
  const std::vector<std::int64_t> slots = record.inputs.at("state_indices").to_integers();
  call::Tensor& states = record.outputs.at("final_state");
  const call::Tensor right = states;
  const std::int64_t block = 2 * 16 * 8;
  for (std::size_t b = 0; b < 5; ++b) {
    for (std::int64_t i = 0; i < block; ++i) {
      states.set(slots[b] * block + i, right[slots[4 - b] * block + i]);
    }
  }
  CHECK(first_name(record, local_table()) == "final_state is reversed along the slots of the rows");
}

TEST_CASE("several outputs, and one mistake of the table beside them") {
  const auto reversed = [](std::int64_t i) { return 3 - i; };
  Record both = capture_of(kOne, {});
  move(both.outputs.at("o"), 1, reversed);
  move(both.outputs.at("final_state"), 1, reversed);
  CHECK(first_name(both, local_table()) ==
        "final_state is reversed along head + o is reversed along head");
  Record composed = capture_of(kOne, {&kScaleMissing});
  move(composed.outputs.at("o"), 1, reversed);
  CHECK(first_name(composed, local_table()) == "o is reversed along head + scale_missing");
}

TEST_CASE("what is in no order is not explained by one") {
  Record record = capture_of(kOne, {});
  call::Tensor& o = record.outputs.at("o");
  move(o, 1, [](std::int64_t i) { return 3 - i; });
  o.set(5, 2 * o[5] + 1);  // one element is nothing's
  CHECK(first_name(record, local_table()) == "none");
  // Two of the numbers of a head, not whole rows.
  Record pair = capture_of(kOne, {});
  call::Tensor& y = pair.outputs.at("o");
  const double first = y[0];
  y.set(0, y[9]);
  y.set(9, first);
  CHECK(first_name(pair, local_table()) == "none");
}

}  // namespace goldenrule::explain::test
