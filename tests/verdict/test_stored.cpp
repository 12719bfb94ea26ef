// SPDX-License-Identifier: Apache-2.0
//
// Judging against golden values from a file: they are taken as they are, with their radius.
#include <doctest/doctest.h>

#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using namespace goldenrule::verdict::test;
using call::DType;

namespace {

constexpr const char* kLine = "op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=6";

std::map<std::string, StoredGolden> stored(const Judged& call) {
  std::map<std::string, StoredGolden> golden;
  for (const auto& [name, e] : call.expected.outputs) golden[name] = {e.golden, e.max_radius()};
  return golden;
}

}  // namespace

TEST_CASE("stored: right outputs are EXACT, and the bits are those of the file") {
  const Judged call(kLine, "recurrent_f32", DType::kF32);
  const CaseReport report = judge_stored(call.record, *call.contract, stored(call), 168);
  CHECK(report.verdict == Verdict::kExact);
  CHECK(report.precision_bits == 168);
  CHECK(report.contract == "recurrent_f32");
}

TEST_CASE("stored: the golden values of the file count, not those of the inputs") {
  const Judged call(kLine, "recurrent_f32", DType::kF32);
  auto golden = stored(call);
  golden.at("o").values[7] += 0.5;
  const CaseReport report = judge_stored(call.record, *call.contract, golden, 53);
  CHECK(report.verdict == Verdict::kOutOfBudget);
  CHECK(tensor(report, "o").out_of_budget == 1);
  CHECK(tensor(report, "o").worst->index == call::unravel(call.expected.outputs.at("o").shape, 7));
  CHECK(tensor(report, "final_state").verdict == Verdict::kExact);
}

TEST_CASE("stored: the radius of the file is granted, and marks what it decided") {
  Judged call(kLine, "recurrent_f32", DType::kF32);
  auto golden = stored(call);
  golden.at("o").values[7] += 0.5;
  golden.at("o").radius = 0.6;
  const CaseReport report = judge_stored(call.record, *call.contract, golden, 53);
  CHECK(report.verdict == Verdict::kWithinBudget);
  CHECK(tensor(report, "o").undecided == 1);
  golden.at("o").radius = 0.4;
  CHECK(judge_stored(call.record, *call.contract, golden, 53).verdict == Verdict::kOutOfBudget);
}

// The f32 next to 0.7 is 1e-8 below it, and f64 outputs that are rounded once have no budget that
// would hide that.
TEST_CASE("stored: the radius of the file is not rounded down") {
  const Judged call(kLine, "ideal", DType::kF64);
  auto golden = stored(call);
  golden.at("o").values[7] += 0.7;
  golden.at("o").radius = 0.7;
  CHECK(judge_stored(call.record, *call.contract, golden, 53).verdict == Verdict::kWithinBudget);
}

TEST_CASE("stored: golden values for every output, of its size") {
  const Judged call(kLine, "recurrent_f32", DType::kF32);
  auto golden = stored(call);
  golden.erase("final_state");
  CHECK_THROWS_WITH_AS((void)judge_stored(call.record, *call.contract, golden, 53),
                       "/golden/final_state: expected golden values for every output, actual none",
                       Error);
  golden = stored(call);
  golden.at("o").values.pop_back();
  CHECK_THROWS_WITH_AS((void)judge_stored(call.record, *call.contract, golden, 53),
                       "/golden/o: expected 72 values, actual 71", Error);
  // More golden values than outputs are no mistake: a kernel may give o alone.
  Judged only_o(kLine, "recurrent_f32", DType::kF32);
  only_o.record.outputs.erase("final_state");
  only_o.record.outputs.erase("intermediate_states");
  CHECK(judge_stored(only_o.record, *only_o.contract, stored(only_o), 53).verdict ==
        Verdict::kExact);
}
