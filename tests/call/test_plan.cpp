// SPDX-License-Identifier: Apache-2.0
//
// The rules on which the kernels disagree, as a table: for each call, which block every sequence
// starts from and which snapshots it leaves where.
#include <doctest/doctest.h>

#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

constexpr auto kFinal = Target::kFinalState;
constexpr auto kIntermediate = Target::kIntermediateStates;

struct Expectation {
  std::int64_t first, count, start;
  bool padded;
  std::vector<Snapshot> snapshots;
};

void check_plan(const Record& record, bool intermediate, const std::vector<Expectation>& rows) {
  const Plan plan = make_plan(record, intermediate);
  REQUIRE(plan.sequences.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    const Sequence& s = plan.sequences[i];
    CHECK(s.first_token == rows[i].first);
    CHECK(s.token_count == rows[i].count);
    CHECK(s.padded == rows[i].padded);
    if (!s.padded) CHECK(s.start_block == rows[i].start);
    REQUIRE(s.snapshots.size() == rows[i].snapshots.size());
    for (std::size_t n = 0; n < s.snapshots.size(); ++n) {
      CAPTURE(n);
      CHECK(s.snapshots[n].after == rows[i].snapshots[n].after);
      CHECK(s.snapshots[n].target == rows[i].snapshots[n].target);
      CHECK(s.snapshots[n].block == rows[i].snapshots[n].block);
    }
  }
}

Record with(Record r, const std::string& name, Tensor tensor) {
  r.inputs[name] = std::move(tensor);
  return r;
}

Record with_pad(Record r, std::int64_t pad) {
  r.convention.pad_slot = pad;
  return r;
}

Record without_update(Record r) {
  r.convention.disable_state_update = 1;
  return r;
}

}  // namespace

TEST_CASE("plan: rows without indices use their own slot, whatever the pad slot is") {
  const std::vector<Expectation> rows{{0, 4, 0, false, {{4, kFinal, 0}}},
                                      {4, 4, 1, false, {{4, kFinal, 1}}},
                                      {8, 4, 2, false, {{4, kFinal, 2}}}};
  check_plan(mtp(), false, rows);
  check_plan(with_pad(mtp(), 0), false, rows);
}

TEST_CASE("plan: slots, and pads outside and inside the pool") {
  for (const DType index : {DType::kI32, DType::kI64}) {
    check_plan(with(decode(), "state_indices", integers({8, -1, 0}, index)), false,
               {{0, 1, 8, false, {{1, kFinal, 8}}},
                {1, 1, -1, true, {}},
                {2, 1, 0, false, {{1, kFinal, 0}}}});
  }
  check_plan(with_pad(with(decode(), "state_indices", integers({8, 0, 0})), 0), false,
             {{0, 1, 8, false, {{1, kFinal, 8}}}, {1, 1, 0, true, {}}, {2, 1, 0, true, {}}});
}

TEST_CASE("plan: separate outputs") {
  // Row 1 may read the slot that row 0 writes: reads see the pool as it was. Row 2 writes nowhere.
  Record r = with(decode(), "state_indices", integers({3, 4, 3}));
  check_plan(with(r, "output_state_indices", integers({4, 3, -1})), false,
             {{0, 1, 3, false, {{1, kFinal, 4}}},
              {1, 1, 4, false, {{1, kFinal, 3}}},
              {2, 1, 3, false, {}}});
  // A padded row writes nothing, whatever its output slot: no race with row 0.
  r = with(decode(), "state_indices", integers({3, -1, 5}));
  check_plan(with(r, "output_state_indices", integers({4, 4, 6})), false,
             {{0, 1, 3, false, {{1, kFinal, 4}}},
              {1, 1, -1, true, {}},
              {2, 1, 5, false, {{1, kFinal, 6}}}});
  // Without state_indices the rows read their own slots.
  check_plan(with_pad(with(decode(), "output_state_indices", integers({0, 4, 5})), 0), false,
             {{0, 1, 0, false, {}},
              {1, 1, 1, false, {{1, kFinal, 4}}},
              {2, 1, 2, false, {{1, kFinal, 5}}}});
}

TEST_CASE("plan: accepted counts choose the final state, not the intermediate ones") {
  Record r = with(mtp(), "state_indices", integers({5, -1, 7}));
  r = with(r, "accepted_tokens", integers({0, 2, 3}));
  check_plan(r, true,
             {{0,
               4,
               5,
               false,
               {{0, kFinal, 5},
                {1, kIntermediate, 0},
                {2, kIntermediate, 1},
                {3, kIntermediate, 2},
                {4, kIntermediate, 3}}},
              {4, 4, -1, true, {}},
              {8,
               4,
               7,
               false,
               {{1, kIntermediate, 8},
                {2, kIntermediate, 9},
                {3, kFinal, 7},
                {3, kIntermediate, 10},
                {4, kIntermediate, 11}}}});
  check_plan(r, false,
             {{0, 4, 5, false, {{0, kFinal, 5}}},
              {4, 4, -1, true, {}},
              {8, 4, 7, false, {{3, kFinal, 7}}}});
}

TEST_CASE("plan: the scatter form starts at the last accepted token's slot") {
  Record r =
      with(mtp(), "ssm_state_indices", integer_rows(3, {8, 1, 2, 3, 4, -1, 5, 6, -1, 7, 0, -1}));
  const Record scatter = with(r, "num_accepted_tokens", integers({3, 1, 1}));
  check_plan(scatter, false,
             {{0, 4, 2, false, {{1, kFinal, 8}, {2, kFinal, 1}, {3, kFinal, 2}, {4, kFinal, 3}}},
              {4, 4, 4, false, {{1, kFinal, 4}, {3, kFinal, 5}, {4, kFinal, 6}}},
              {8, 4, -1, true, {}}});  // its start slot is the pad slot: it writes nothing either
  check_plan(without_update(scatter), false,
             {{0, 4, 2, false, {}}, {4, 4, 4, false, {}}, {8, 4, -1, true, {}}});
}

TEST_CASE("plan: the scatter form starts where state_indices says, if they are given") {
  const Record r = with(
      with(mtp(), "ssm_state_indices", integer_rows(3, {8, 1, 2, 3, 4, -1, 5, 6, -1, 7, 0, -1})),
      "state_indices", integers({4, -1, 7}));
  check_plan(r, false,
             {{0, 4, 4, false, {{1, kFinal, 8}, {2, kFinal, 1}, {3, kFinal, 2}, {4, kFinal, 3}}},
              {4, 4, -1, true, {}},
              {8, 4, 7, false, {{2, kFinal, 7}, {3, kFinal, 0}}}});
}

TEST_CASE("plan: a disabled update leaves the pool alone and still shows the states") {
  const Record r = without_update(with(mtp(), "state_indices", integers({5, -1, 5})));
  const Plan plan = make_plan(r, true);
  CHECK(plan.kept_states == kIntermediate);
  for (const std::size_t row : {std::size_t{0}, std::size_t{2}}) {
    CHECK(plan.sequences[row].start_block == 5);  // shared: nobody writes it
    REQUIRE(plan.sequences[row].snapshots.size() == 4);
    for (const Snapshot& s : plan.sequences[row].snapshots) CHECK(s.target == kIntermediate);
  }
  CHECK(plan.sequences[1].snapshots.empty());
}

TEST_CASE("plan: zero tokens leave the start state") {
  Record r = with_tokens(Op::kGatedDeltaRule, Mode::kMtp, {2, 0});
  r.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  r = with(r, "state_indices", integers({1, 2}));
  check_plan(with(r, "output_state_indices", integers({3, 4})), true,
             {{0, 0, 1, false, {{0, kFinal, 3}}}, {0, 0, 2, false, {{0, kFinal, 4}}}});
}

TEST_CASE("plan: prefill, with and without start states, with empty sequences") {
  check_plan(prefill(), true,
             {{0, 3, -1, false, {{3, kFinal, 0}}},
              {3, 0, -1, false, {{0, kFinal, 1}}},
              {3, 5, -1, false, {{5, kFinal, 2}}}});
  CHECK_FALSE(make_plan(prefill(), true).kept_states.has_value());
  check_plan(with(prefill(), "initial_state", floats({3, kHV, kV, kK})), false,
             {{0, 3, 0, false, {{3, kFinal, 0}}},
              {3, 0, 1, false, {{0, kFinal, 1}}},
              {3, 5, 2, false, {{5, kFinal, 2}}}});
}

TEST_CASE("plan: calls of nothing") {
  Record r = with_tokens(Op::kKda, Mode::kPrefill, {0});
  r.inputs["cu_seqlens"] = integers({0});
  CHECK(make_plan(r, false).sequences.empty());
  Record d = with_tokens(Op::kKda, Mode::kDecode, {0, 1});
  d.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  CHECK(make_plan(d, false).sequences.empty());
}
