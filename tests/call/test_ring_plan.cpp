// SPDX-License-Identifier: Apache-2.0
//
// Plans of calls that replay pending tokens from rings, and what they refuse.
#include <doctest/doctest.h>

#include "fixtures/call/operation.hpp"
#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

constexpr std::int64_t kRings = 5, kPlaces = 8;

// 3 rows of 4 tokens.
Record ringed(std::initializer_list<double> start, std::initializer_list<double> count,
              Op op = Op::kGatedDeltaRule) {
  Record r = mtp(op);
  r.inputs["initial_ring_d"] = floats({kRings, kHV, kPlaces, kV});
  r.inputs["initial_ring_k"] = floats({kRings, kH, kPlaces, kK});
  r.inputs["initial_ring_g"] =
      op == Op::kKda ? floats({kRings, kHV, kPlaces, kK}) : floats({kRings, kHV, kPlaces});
  r.inputs["ring_start"] = integers(start);
  r.inputs["ring_count"] = integers(count);
  return r;
}

Record with(Record r, const std::string& name, Tensor tensor) {
  r.inputs[name] = std::move(tensor);
  return r;
}

void refuses(const Record& record, ErrorKind kind, const std::string& where,
             const std::string& expected, const std::string& actual) {
  check_refused([&] { (void)make_plan(record, true); },
                {kind, "/inputs/" + where, expected, actual});
}

}  // namespace

TEST_CASE("rings: pending tokens come first, and a state is left where they are flushed") {
  for (const Op op : {Op::kGatedDeltaRule, Op::kKda}) {
    Record r = ringed({7, 0, 3}, {4, 0, 2}, op);
    CHECK(has_ring(r));
    const Plan kept = make_plan(r, true);
    CHECK_FALSE(kept.kept_states);
    CHECK(kept.sequences[0].replay.ring == 0);
    CHECK(kept.sequences[0].replay.place(0) == 7);
    CHECK(kept.sequences[0].replay.place(1) == 0);
    CHECK(kept.sequences[0].lane_tokens() == 8);
    CHECK(kept.sequences[0].token_count == 4);
    CHECK(kept.sequences[2].first_token == 8);
    for (const Sequence& s : kept.sequences) CHECK(s.snapshots.empty());

    r = with(with(r, "ring_flush", integers({1, 1, 0})), "ring_indices", integers({4, 0, 2}));
    const Plan plan = make_plan(r, true);
    CHECK(plan.sequences[0].replay.ring == 4);
    REQUIRE(plan.sequences[0].snapshots.size() == 1);
    CHECK(plan.sequences[0].snapshots[0].after == 4);
    CHECK(plan.sequences[1].snapshots[0].after == 0);
    CHECK(plan.sequences[2].snapshots.empty());
    CHECK(output_shape(r, validate(r), "ring_d") == Shape{kRings, kHV, kPlaces, kV});
    CHECK(output_shape(r, validate(r), "ring_k") == Shape{kRings, kH, kPlaces, kK});
    CHECK(output_shape(r, validate(r), "ring_g").size() == (op == Op::kKda ? 4 : 3));
  }
}

TEST_CASE("rings: nothing is read of a padded row") {
  Record r = ringed({99, 0, 3}, {99, 0, 2});
  r = with(with(r, "state_indices", integers({-1, 1, 2})), "ring_indices", integers({99, 1, 2}));
  const Plan plan = make_plan(r, true);
  CHECK(plan.sequences[0].replay.ring == -1);
  CHECK(plan.sequences[0].lane_tokens() == 4);
  CHECK(plan.sequences[2].replay.count == 2);
}

TEST_CASE("rings: cursors that make no sense are refused") {
  using enum ErrorKind;
  refuses(ringed({8, 0, 0}, {1, 0, 0}), kValue, "ring_start[0]", "0 to 7", "8");
  refuses(ringed({0, -1, 0}, {1, 0, 0}), kValue, "ring_start[1]", "0 to 7", "-1");
  refuses(ringed({0, 0, 0}, {1, 9, 0}), kValue, "ring_count[1]", "at most the 8 places of a ring",
          "9");
  refuses(ringed({0, 0, 0}, {1, 0, 5}), kValue, "ring_count[2]",
          "0 to 4: the 4 tokens of row 2 would overwrite pending ones in a ring of 8", "5");
  refuses(ringed({0, 0, 0}, {1, 0, -1}), kValue, "ring_count[2]",
          "0 to 4: the 4 tokens of row 2 would overwrite pending ones in a ring of 8", "-1");
  const Record r = ringed({0, 0, 0}, {1, 0, 2});
  refuses(with(r, "ring_indices", integers({0, 5, 1})), kValue, "ring_indices[1]", "0 to 4", "5");
  refuses(with(r, "ring_indices", integers({3, 0, 3})), kValue, "ring_indices[2]",
          "each slot written once (element 0 writes it too)", "3");
  refuses(with(r, "ring_flush", integers({0, 2, 0})), kValue, "ring_flush[1]", "0 to 1", "2");
  refuses(with(r, "initial_ring_d", floats({2, kHV, kPlaces, kV})), kShape, "initial_ring_k",
          "[2,2,8,5]", "[5,2,8,5]");
  // A ring of no places costs nothing, so there may be any number of them: 2^40 rings of 0 bytes.
  Record none = r;
  for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g"}) {
    Shape shape = none.inputs.at(name).shape();
    shape[0] = std::int64_t{1} << 40;
    shape[2] = 0;
    none.inputs[name] = Tensor(DType::kF32, shape);
  }
  refuses(none, kShape, "initial_ring_d", "rings of at least one place", "0");
}

TEST_CASE("rings: what is missing and what does not belong there is said") {
  using enum ErrorKind;
  const Record r = ringed({0, 0, 0}, {1, 0, 2});
  for (const char* name : {"ring_start", "ring_count", "initial_ring_k", "initial_ring_g"}) {
    CAPTURE(name);
    Record missing = r;
    missing.inputs.erase(name);
    const auto error = error_of([&] { (void)make_plan(missing, true); });
    REQUIRE(error);
    CHECK(error->where() == "/inputs/" + std::string(name));
    CHECK(error->actual() == "none");
  }
  Record states = r;
  states.inputs.erase("initial_ring_d");
  CHECK(error_of([&] { (void)make_plan(states, true); }));
  for (const char* name : {"accepted_tokens", "checkpoint_state_indices", "request_ids"}) {
    CAPTURE(name);
    const auto error = error_of([&] { (void)make_plan(with(r, name, integers({0, 0, 0})), true); });
    REQUIRE(error);
    CHECK(error->where() == "/inputs/" + std::string(name));
    CHECK(error->actual().find("without rings") != std::string::npos);
  }
  Record tree = with(r, "parent_tokens", integer_rows(3, {-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2}));
  CHECK(error_of([&] { (void)make_plan(tree, true); })->where() == "/inputs/parent_tokens");
  Record kept = r;
  kept.outputs["intermediate_states"] = floats({kRows, kT, kHV, kV, kK});
  CHECK(error_of([&] { (void)validate(kept); })->where() == "/outputs/intermediate_states");
}
