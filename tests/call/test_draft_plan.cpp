// SPDX-License-Identifier: Apache-2.0
//
// Plans of the forms in which engines call MTP: rows of unequal length, buffers of
// intermediate states, second slots, trees. What they refuse stands beside what they mean.
#include <doctest/doctest.h>

#include "fixtures/call/operation.hpp"
#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

using Integers = std::vector<std::int64_t>;

Record with(Record r, const std::string& name, Tensor tensor) {
  r.inputs[name] = std::move(tensor);
  return r;
}

// 8 tokens in rows of 3, 0 and 5.
Record uneven() {
  Record r = with_tokens(Op::kGatedDeltaRule, Mode::kMtp, {8});
  r.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  r.inputs["cu_seqlens"] = integers({0, 3, 3, 8});
  return r;
}

Record buffered(std::int64_t rows, std::int64_t steps) {
  return with(mtp(), "initial_intermediate_states", floats({rows, steps, kHV, kV, kK}));
}

// The blocks of `target` that row `n` leaves, with the tokens after which.
std::vector<std::pair<std::int64_t, std::int64_t>> left(const Record& record, std::size_t n,
                                                        Target target) {
  std::vector<std::pair<std::int64_t, std::int64_t>> blocks;
  const Plan plan = make_plan(record, true);
  for (const Snapshot& s : plan.sequences.at(n).snapshots) {
    if (s.target == target) blocks.emplace_back(s.after, s.block);
  }
  return blocks;
}
using Blocks = std::vector<std::pair<std::int64_t, std::int64_t>>;

void refuses(const Record& record, ErrorKind kind, const std::string& where,
             const std::string& expected, const std::string& actual) {
  check_refused([&] { (void)make_plan(record, true); },
                {kind, "/inputs/" + where, expected, actual});
}

}  // namespace

TEST_CASE("rows of unequal length: tokens, states and counts are those of each row") {
  for (const DType index : {DType::kI32, DType::kI64}) {
    Record r = with(uneven(), "cu_seqlens", integers({0, 3, 3, 8}, index));
    r = with(r, "accepted_tokens", integers({3, 0, 2}, index));
    const Plan plan = make_plan(r, true);
    CHECK(plan.dims.rows == 3);
    CHECK(plan.dims.tokens == 8);
    CHECK(plan.sequences[2].first_token == 3);
    CHECK(plan.sequences[2].token_count == 5);
    CHECK(left(r, 0, Target::kFinalState) == Blocks{{3, 0}});
    CHECK(left(r, 1, Target::kFinalState) == Blocks{{0, 1}});
    CHECK(left(r, 2, Target::kFinalState) == Blocks{{2, 2}});
    CHECK(left(r, 1, Target::kIntermediateStates).empty());
    CHECK(left(r, 2, Target::kIntermediateStates) ==
          Blocks{{1, 3}, {2, 4}, {3, 5}, {4, 6}, {5, 7}});
  }
  CHECK(output_shape(uneven(), validate(uneven()), "o") == Shape{8, kHV, kV});
  CHECK(output_shape(uneven(), validate(uneven()), "intermediate_states") == Shape{8, kHV, kV, kK});
  refuses(with(uneven(), "accepted_tokens", integers({3, 1, 2})), ErrorKind::kValue,
          "accepted_tokens[1]", "0 to 0", "1");
  refuses(with(uneven(), "cu_seqlens", integers({3, 0, 5})), ErrorKind::kValue, "cu_seqlens",
          "where the sequences begin and end, [0,3,3,8]", "their lengths, [3,0,5]");
  refuses(with(uneven(), "cu_seqlens", integers({0, 4, 3, 8})), ErrorKind::kValue, "cu_seqlens[2]",
          "at least 4", "3");
}

TEST_CASE("rows of unequal length: slots behind the tokens of a row are read at most") {
  // Row 0 has 3 tokens and had 5 before; what stands behind its tokens may be anything.
  const auto scatter = [](std::initializer_list<double> slots,
                          std::initializer_list<double> counts) {
    return with(with(uneven(), "ssm_state_indices", integer_rows(3, slots)), "num_accepted_tokens",
                integers(counts));
  };
  const Record r = scatter({0, 1, 2, 99, 3, 4, 99, 99, 99, 99, 5, 6, 7, 8, -1}, {5, 1, 4});
  const Plan plan = make_plan(r, false);
  CHECK(plan.sequences[0].start_block == 3);
  CHECK(plan.sequences[1].start_block == 4);
  CHECK(plan.sequences[2].start_block == 8);
  CHECK(left(r, 0, Target::kFinalState) == Blocks{{1, 0}, {2, 1}, {3, 2}});
  CHECK(left(r, 1, Target::kFinalState).empty());
  refuses(scatter({0, 1, 2, 99, 3, 4, 9, 9, 9, 9, 5, 6, 7, 8, -1}, {4, 1, 4}), ErrorKind::kValue,
          "ssm_state_indices[3]", "a slot below 9 or the pad slot -1", "99");
  refuses(scatter({0, 1, 2, 3, 4, 4, 5, 6, 7, 8, -1, -1}, {1, 1, 1}), ErrorKind::kShape,
          "ssm_state_indices", "a slot for each of the 5 tokens of row 2", "[3,4]");
}

TEST_CASE("a buffer of intermediate states: rows by index or by place, and none") {
  const Record r = with(buffered(5, 6), "intermediate_state_indices", integers({4, -1, 0}));
  CHECK(output_shape(r, validate(r), "intermediate_states") == Shape{5, 6, kHV, kV, kK});
  CHECK(left(r, 0, Target::kIntermediateStates) == Blocks{{1, 24}, {2, 25}, {3, 26}, {4, 27}});
  CHECK(left(r, 1, Target::kIntermediateStates).empty());
  CHECK(left(r, 2, Target::kIntermediateStates) == Blocks{{1, 0}, {2, 1}, {3, 2}, {4, 3}});
  CHECK(left(buffered(3, 4), 1, Target::kIntermediateStates) ==
        Blocks{{1, 4}, {2, 5}, {3, 6}, {4, 7}});
  refuses(with(buffered(5, 6), "intermediate_state_indices", integers({4, -2, 0})),
          ErrorKind::kValue, "intermediate_state_indices[1]", "-1 to 4", "-2");
  refuses(with(buffered(5, 6), "intermediate_state_indices", integers({4, 5, 0})),
          ErrorKind::kValue, "intermediate_state_indices[1]", "-1 to 4", "5");
  refuses(with(buffered(5, 6), "intermediate_state_indices", integers({4, 0, 4})),
          ErrorKind::kValue, "intermediate_state_indices[2]",
          "each slot written once (element 0 writes it too)", "4");
  refuses(buffered(2, 6), ErrorKind::kShape, "initial_intermediate_states",
          "at least B=3 rows (no intermediate_state_indices)", "2");
  // Rows without places cost nothing, so there may be any number of them.
  refuses(buffered(std::int64_t{1} << 40, 0), ErrorKind::kShape, "initial_intermediate_states",
          "a state for each of the 4 tokens of row 0", "0 in a row of the buffer");
  refuses(buffered(3, 3), ErrorKind::kShape, "initial_intermediate_states",
          "a state for each of the 4 tokens of row 0", "3 in a row of the buffer");
  refuses(with(mtp(), "intermediate_state_indices", integers({0, 1, 2})), ErrorKind::kSchema,
          "intermediate_state_indices", "an input that mode 'mtp' reads",
          "a dataset that would be ignored (mtp with initial_intermediate_states: optional (= b), "
          "the row of the buffer, -1: none)");
}

TEST_CASE("a second slot of a row takes the state after a number of tokens of its own") {
  const auto tracked = [](std::initializer_list<double> slots,
                          std::initializer_list<double> after) {
    return with(with(mtp(), "checkpoint_state_indices", integers(slots)), "checkpoint_tokens",
                integers(after));
  };
  const Record r = tracked({8, -1, 7}, {2, 99, 0});
  CHECK(left(r, 0, Target::kFinalState) == Blocks{{2, 8}, {4, 0}});
  CHECK(left(r, 1, Target::kFinalState) == Blocks{{4, 1}});
  CHECK(left(r, 2, Target::kFinalState) == Blocks{{0, 7}, {4, 2}});
  refuses(tracked({8, -1, 7}, {2, 0, 5}), ErrorKind::kValue, "checkpoint_tokens[2]", "0 to 4", "5");
  refuses(tracked({8, -1, 0}, {2, 0, 1}), ErrorKind::kValue, "checkpoint_state_indices[2]",
          "each slot written once (element 0 writes it too)", "0");
  refuses(tracked({8, 9, 7}, {2, 0, 1}), ErrorKind::kValue, "checkpoint_state_indices[1]",
          "a slot below 9 or the pad slot -1", "9");
}

TEST_CASE("trees: a parent stands before its child, in its own row") {
  const Record r = with(uneven(), "parent_tokens", integers({-1, 0, 0, -1, -1, 0, 2, 2}));
  const Plan plan = make_plan(r, true);
  CHECK(plan.sequences[0].parents == Integers{-1, 0, 0});
  CHECK(plan.sequences[1].parents.empty());
  CHECK(plan.sequences[2].parents == Integers{-1, -1, 0, 2, 2});
  CHECK(make_plan(uneven(), true).sequences[0].parents.empty());
  refuses(with(uneven(), "parent_tokens", integers({-1, 0, 2, -1, 0, 0, 0, 0})), ErrorKind::kValue,
          "parent_tokens[2]", "-1 to 1", "2");
  refuses(with(uneven(), "parent_tokens", integers({-1, 0, 0, 2, 0, 0, 0, 0})), ErrorKind::kValue,
          "parent_tokens[3]", "-1 to -1", "2");
  refuses(with(uneven(), "parent_tokens", integers({-2, 0, 0, -1, 0, 0, 0, 0})), ErrorKind::kValue,
          "parent_tokens[0]", "-1 to -1", "-2");
}
