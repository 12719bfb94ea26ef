// SPDX-License-Identifier: Apache-2.0
//
// Prefill on a pool of slots, and prefill that is asked for states on the way: which block every
// sequence starts from, which states it leaves where, and what is refused.
#include <doctest/doctest.h>

#include "fixtures/call/operation.hpp"
#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

constexpr auto kFinal = Target::kFinalState;
constexpr auto kKept = Target::kCheckpoints;

Record with(Record r, const std::string& name, Tensor tensor) {
  r.inputs[name] = std::move(tensor);
  return r;
}

// Three sequences of 3, 0 and 5 tokens on a pool of nine slots.
Record pooled(std::initializer_list<double> slots, DType index = DType::kI64) {
  return with(with(prefill(), "initial_state", floats({kSlots, kHV, kV, kK})), "state_indices",
              integers(slots, index));
}

Record asked(Record r, std::initializer_list<double> offsets,
             std::initializer_list<double> bounds) {
  return with(with(std::move(r), "checkpoint_offsets", integers(offsets)), "cu_checkpoints",
              integers(bounds));
}

void check_snapshots(const Sequence& s, const std::vector<Snapshot>& expected) {
  REQUIRE(s.snapshots.size() == expected.size());
  for (std::size_t n = 0; n < expected.size(); ++n) {
    CAPTURE(n);
    CHECK(s.snapshots[n].after == expected[n].after);
    CHECK(s.snapshots[n].target == expected[n].target);
    CHECK(s.snapshots[n].block == expected[n].block);
  }
}

void check_value(const Record& record, const std::string& where, const std::string& expected,
                 const std::string& actual) {
  check_refused([&] { (void)make_plan(record, true); },
                {ErrorKind::kValue, "/inputs/" + where, expected, actual});
}

}  // namespace

TEST_CASE("prefill plan: slots of a pool, and the pad outside and inside of it") {
  for (const DType index : {DType::kI32, DType::kI64}) {
    const Plan plan = make_plan(pooled({8, 2, -1}, index), true);
    CHECK(plan.dims.slots == kSlots);
    CHECK_FALSE(plan.kept_states.has_value());
    CHECK(plan.sequences[0].start_block == 8);
    check_snapshots(plan.sequences[0], {{3, kFinal, 8}});
    check_snapshots(plan.sequences[1], {{0, kFinal, 2}});
    CHECK(plan.sequences[2].padded);
    CHECK(plan.sequences[2].token_count == 5);
    check_snapshots(plan.sequences[2], {});
  }
  Record zero = pooled({0, 1, 0});
  zero.convention.pad_slot = 0;
  const Plan plan = make_plan(zero, false);
  CHECK(plan.sequences[0].padded);
  CHECK_FALSE(plan.sequences[1].padded);
  CHECK(plan.sequences[2].padded);
}

TEST_CASE("prefill plan: other slots to write, and none") {
  const Record r = with(pooled({8, 2, 8}), "output_state_indices", integers({1, -1, 2}));
  const Plan plan = make_plan(r, false);
  CHECK(plan.sequences[2].start_block == 8);  // shared: reads see the pool as it was
  check_snapshots(plan.sequences[0], {{3, kFinal, 1}});
  check_snapshots(plan.sequences[1], {});
  CHECK_FALSE(plan.sequences[1].padded);
  check_snapshots(plan.sequences[2], {{5, kFinal, 2}});
}

TEST_CASE("prefill plan: the axes of a pool and of checkpoints") {
  const Record r = asked(pooled({8, 2, 0}), {3, 0, 5}, {0, 1, 1, 3});
  const Dims d = validate(r);
  CHECK(output_shape(r, d, "final_state") == Shape{kSlots, kHV, kV, kK});
  CHECK(output_shape(r, d, "checkpoints") == Shape{3, kHV, kV, kK});
  CHECK(output_shape(prefill(), validate(prefill()), "final_state") == Shape{3, kHV, kV, kK});
  check_refused([&] { (void)output_shape(prefill(), validate(prefill()), "checkpoints"); },
                {ErrorKind::kSchema, "/outputs/checkpoints", "o or final_state", "'checkpoints'"});
}

TEST_CASE("prefill plan: checkpoints at the start, on the way and at the end") {
  const Record r = asked(pooled({8, 2, -1}), {0, 2, 3, 0, 0, 1, 5}, {0, 3, 5, 7});
  const Plan plan = make_plan(r, true);
  CHECK(plan.kept_states == kKept);
  check_snapshots(plan.sequences[0], {{0, kKept, 0}, {2, kKept, 1}, {3, kFinal, 8}, {3, kKept, 2}});
  check_snapshots(plan.sequences[1], {{0, kFinal, 2}, {0, kKept, 3}, {0, kKept, 4}});
  check_snapshots(plan.sequences[2], {});  // padded: nothing writes its rows
  CHECK(plan.sequences[2].checkpoints == std::vector<std::int64_t>{1, 5});

  const Plan unwanted = make_plan(r, false);
  CHECK_FALSE(unwanted.kept_states.has_value());
  check_snapshots(unwanted.sequences[0], {{3, kFinal, 8}});
  CHECK(unwanted.sequences[0].checkpoints == std::vector<std::int64_t>{0, 2, 3});
  CHECK(state_positions(unwanted.sequences[0]) == std::vector<std::int64_t>{2, 3});
  CHECK(state_positions(unwanted.sequences[1]).empty());
  CHECK(state_positions(make_plan(prefill(), true).sequences[2]) == std::vector<std::int64_t>{5});
}

TEST_CASE("prefill plan refuses: slots as decode does") {
  check_value(pooled({8, 9, 0}), "state_indices[1]", "a slot below 9 or the pad slot -1", "9");
  check_value(pooled({8, 2, -2}), "state_indices[2]", "a slot below 9 or the pad slot -1", "-2");
  check_value(pooled({8, 2, 8}), "state_indices[2]",
              "each slot written once (element 0 writes it too)", "8");
  check_refused(
      [] {
        (void)validate(with(prefill(), "output_state_indices", integers({0, 1, 2})));
      },
      {ErrorKind::kSchema, "/inputs/output_state_indices", "an input that mode 'prefill' reads",
       "a dataset that would be ignored (optional (= state_indices), in prefill with "
       "state_indices)"});
  Record no_pool = with(prefill(), "state_indices", integers({0, 1, 2}));
  check_refused([&] { (void)validate(no_pool); },
                {ErrorKind::kSchema, "/inputs/initial_state", "a dataset of rank 4",
                 "none; give zeros [3,6,7,5] where the kernel starts from none"});
  check_refused(
      [] {
        (void)validate(with(prefill(), "initial_state", floats({kSlots, kHV, kV, kK})));
      },
      {ErrorKind::kShape, "/inputs/initial_state", "[3,6,7,5]", "[9,6,7,5]"});
}

TEST_CASE("prefill plan refuses: checkpoints out of place") {
  check_value(asked(prefill(), {4, 0, 5}, {0, 1, 2, 3}), "checkpoint_offsets[0]",
              "0 to 3 tokens of sequence 0", "4");
  check_value(asked(prefill(), {3, -1, 5}, {0, 1, 1, 3}), "checkpoint_offsets[1]",
              "0 to 5 tokens of sequence 2", "-1");
  check_value(asked(prefill(), {3, 1}, {0, 2, 2, 2}), "checkpoint_offsets[1]",
              "3 to 3 tokens of sequence 0", "1");
  check_value(asked(prefill(), {3, 5}, {0, 1, 1, 1}), "cu_checkpoints[3]",
              "2, the number of checkpoints", "1");
  check_value(asked(prefill(), {3, 5}, {0, 2, 1, 2}), "cu_checkpoints[2]", "at least 2", "1");
  check_value(asked(prefill(), {3, 5}, {1, 1, 1, 2}), "cu_checkpoints[0]", "0", "1");
  check_refused([] { (void)validate(with(prefill(), "checkpoint_offsets", integers({3}))); },
                {ErrorKind::kSchema, "/inputs/cu_checkpoints",
                 "a dataset [4] (gate 'softplus', beta 'sigmoid')", "none"});
  check_refused(
      [] {
        (void)validate(with(prefill(), "cu_checkpoints", integers({0, 0, 0, 0})));
      },
      {ErrorKind::kSchema, "/inputs/cu_checkpoints", "an input that mode 'prefill' reads",
       "a dataset that would be ignored (prefill: with checkpoint_offsets, where those of each "
       "sequence begin and end)"});
  check_refused([] { (void)validate(with(mtp(), "checkpoint_offsets", integers({3}))); },
                {ErrorKind::kSchema, "/inputs/checkpoint_offsets", "an input that mode 'mtp' reads",
                 "a dataset that would be ignored (prefill: optional, after how many tokens of its "
                 "sequence each state is wanted)"});
}

TEST_CASE("prefill plan: where elements lie follows from the axes") {
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    Record r = asked(pooled({8, 2, 0}), {3}, {0, 1, 1, 1});
    r.convention.state_layout = layout;
    const bool vk = layout == StateLayout::kVK;
    r.inputs["initial_state"] = floats({kSlots, kHV, vk ? kV : kK, vk ? kK : kV});
    const Dims d = validate(r);
    const Strides state = output_strides(r, d, "checkpoints");
    CHECK(state(2, 3, 4, 6) ==
          static_cast<std::size_t>((2 * kHV + 3) * kK * kV + (vk ? 6 * kK + 4 : 4 * kV + 6)));
    const Strides o = output_strides(r, d, "o");
    CHECK(o(7, 5, 4, 6) == static_cast<std::size_t>((7 * kHV + 5) * kV + 6));
  }
  const Record r = mtp();
  const Strides kept = output_strides(r, validate(r), "intermediate_states");
  CHECK(kept(kT + 1, 1, 0, 0) == static_cast<std::size_t>(((kT + 1) * kHV + 1) * kK * kV));
}

TEST_CASE("plan: a row that is new starts from zero, whatever its block holds") {
  const Record states = with(prefill(), "initial_state", floats({3, kHV, kV, kK}));
  const Plan plain = make_plan(with(states, "has_initial_state", integers({0, 1, 0})), true);
  CHECK(plain.sequences[0].start_block == -1);
  CHECK(plain.sequences[1].start_block == 1);
  CHECK(plain.sequences[2].start_block == -1);
  check_snapshots(plain.sequences[2], {{5, kFinal, 2}});
  const Plan pool =
      make_plan(with(pooled({8, 2, -1}), "has_initial_state", integers({1, 0, 0})), true);
  CHECK(pool.sequences[0].start_block == 8);
  CHECK(pool.sequences[1].start_block == -1);
  check_snapshots(pool.sequences[1], {{0, kFinal, 2}});
  CHECK(pool.sequences[2].padded);
  CHECK(pool.sequences[2].snapshots.empty());
  check_value(with(states, "has_initial_state", integers({0, 2, 0})), "has_initial_state[1]",
              "0 to 1", "2");
}
