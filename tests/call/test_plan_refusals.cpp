// SPDX-License-Identifier: Apache-2.0
//
// What make_plan() refuses: integer inputs without a meaning. Refused before any of them is used
// as an index.
#include <doctest/doctest.h>

#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

Record with(Record r, const std::string& name, Tensor tensor) {
  r.inputs[name] = std::move(tensor);
  return r;
}

Record scatter(std::initializer_list<double> slots, std::initializer_list<double> accepted) {
  return with(with(mtp(), "ssm_state_indices", integer_rows(kRows, slots)), "num_accepted_tokens",
              integers(accepted));
}

void check_value(const Record& record, const std::string& where, const std::string& expected,
                 const std::string& actual) {
  check_refused([&] { (void)make_plan(record, true); },
                {ErrorKind::kValue, "/inputs/" + where, expected, actual});
}

constexpr double kMin = -0x1p31;

}  // namespace

TEST_CASE("plan refuses: cu_seqlens") {
  const auto lengths = [](std::initializer_list<double> values, DType t = DType::kI64) {
    return with(prefill(), "cu_seqlens", integers(values, t));
  };
  check_value(lengths({1, 3, 8}), "cu_seqlens[0]", "0", "1");
  check_value(lengths({-1, 3, 8}), "cu_seqlens[0]", "0", "-1");
  check_value(lengths({0, 5, 4, 8}), "cu_seqlens[2]", "at least 5", "4");
  check_value(lengths({0, -3, 8}, DType::kI32), "cu_seqlens[1]", "at least 0", "-3");
  check_value(lengths({0, 5, 9}), "cu_seqlens[2]", "at most 8 tokens", "9");
  check_value(lengths({0, 9, 8}), "cu_seqlens[1]", "at most 8 tokens", "9");
  check_value(lengths({0, 0x1p62, 8}), "cu_seqlens[1]", "at most 8 tokens", "4611686018427387904");
  check_value(lengths({0, 5, 7}), "cu_seqlens[2]", "8, the number of tokens", "7");
  check_value(lengths({0}), "cu_seqlens[0]", "8, the number of tokens", "0");
}

TEST_CASE("plan refuses: slots out of range") {
  const std::string expected = "a slot below 9 or the pad slot -1";
  for (const char* name : {"state_indices", "output_state_indices"}) {
    for (const DType t : {DType::kI32, DType::kI64}) {
      check_value(with(mtp(), name, integers({0, 9, 2}, t)), std::string(name) + "[1]", expected,
                  "9");
      check_value(with(decode(), name, integers({0, 1, -2}, t)), std::string(name) + "[2]",
                  expected, "-2");
      check_value(with(mtp(), name, integers({kMin, 1, 2}, t)), std::string(name) + "[0]", expected,
                  "-2147483648");
    }
  }
  check_value(scatter({0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 9, -1}, {1, 1, 1}), "ssm_state_indices[10]",
              expected, "9");
  // With another pad slot, -1 is a slot like any other that does not exist.
  Record vllm = with(decode(), "state_indices", integers({0, 1, -1}));
  vllm.convention.pad_slot = 0;
  check_value(vllm, "state_indices[2]", "a slot below 9 or the pad slot 0", "-1");
}

TEST_CASE("plan refuses: a slot written twice") {
  const std::string first = "each slot written once (element 0 writes it too)";
  check_value(with(decode(), "state_indices", integers({4, 2, 4})), "state_indices[2]", first, "4");
  check_value(with(with(mtp(), "state_indices", integers({0, 1, 2})), "output_state_indices",
                   integers({5, 5, 6})),
              "output_state_indices[1]", first, "5");
  check_value(scatter({0, 1, 2, 3, 4, 5, 1, 6, -1, -1, -1, -1}, {1, 1, 1}), "ssm_state_indices[6]",
              "each slot written once (element 1 writes it too)", "1");
}

TEST_CASE("plan refuses: accepted counts") {
  check_value(with(mtp(), "accepted_tokens", integers({0, 4, 5})), "accepted_tokens[2]", "0 to 4",
              "5");
  check_value(with(mtp(), "accepted_tokens", integers({-1, 4, 4})), "accepted_tokens[0]", "0 to 4",
              "-1");
  // The start slot is that of token num_accepted - 1: 0 would name no token.
  check_value(scatter({0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1}, {1, 0, 1}),
              "num_accepted_tokens[1]", "1 to 4", "0");
  check_value(scatter({0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1}, {1, 1, 5}),
              "num_accepted_tokens[2]", "1 to 4", "5");
}

TEST_CASE("plan refuses: two ways at once to name the slots") {
  for (const char* other : {"output_state_indices", "accepted_tokens"}) {
    const Record both = with(scatter({0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1}, {1, 1, 1}), other,
                             integers({0, 1, 2}));
    check_refused(
        [&] { (void)make_plan(both, false); },
        {ErrorKind::kSchema, "/inputs/" + std::string(other),
         "no dataset beside ssm_state_indices, which already names every slot", "a dataset"});
  }
}

TEST_CASE("plan refuses: start slots of a scatter out of range, or counts beside them") {
  Record from = scatter({0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1}, {1, 1, 1});
  from.inputs["state_indices"] = integers({0, 9, -1});
  check_refused(
      [&] { (void)make_plan(from, false); },
      {ErrorKind::kSchema, "/inputs/num_accepted_tokens", "an input that mode 'mtp' reads",
       "a dataset that would be ignored (mtp: with ssm_state_indices alone, the token "
       "whose slot the row starts from)"});
  from.inputs.erase("num_accepted_tokens");
  check_value(from, "state_indices[1]", "a slot below 9 or the pad slot -1", "9");
}

TEST_CASE("plan refuses: a disabled update where no pool is updated") {
  for (const bool from_state : {false, true}) {
    Record r = prefill();
    if (!from_state) r.inputs.erase("initial_state");
    r.convention.disable_state_update = 1;
    check_refused([&] { (void)make_plan(r, false); },
                  {ErrorKind::kValue, "/convention/disable_state_update",
                   "0 in a prefill without a pool", "1"});
  }
}

TEST_CASE("plan refuses: a pool smaller than the batch that nobody indexes") {
  check_refused(
      [] {
        (void)make_plan(with(decode(), "initial_state", floats({2, 6, 7, 5})), false);
      },
      {ErrorKind::kShape, "/inputs/initial_state", "at least B=3 slots (no state_indices)", "2"});
}

TEST_CASE("plan refuses: a scatter of no tokens") {
  Record r = with_tokens(Op::kGatedDeltaRule, Mode::kMtp, {kRows, 0});
  r.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  r.inputs["ssm_state_indices"] = Tensor(DType::kI64, {kRows, 0});
  r.inputs["num_accepted_tokens"] = integers({1, 1, 1});
  check_refused([&] { (void)make_plan(r, false); }, {ErrorKind::kShape, "/inputs/ssm_state_indices",
                                                     "a slot per token, at least one", "[3,0]"});
}
