// SPDX-License-Identifier: Apache-2.0
//
// One wrong element among right ones must be found, in every output of every mode, with its exact
// index; and an element within its budget must not be.
#include <doctest/doctest.h>

#include <random>

#include "reference/verdict/budget.hpp"
#include "reference/verdict/coordinates.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using namespace goldenrule::verdict::test;
using call::DType;

namespace {

const std::initializer_list<std::pair<const char*, DType>> kContracts{
    {"ideal", DType::kF32},
    {"ideal", DType::kBF16},
    {"recurrent_f32", DType::kF32},
    {"recurrent_bf16_state", DType::kBF16}};

// The first, the last and some random elements that are judged.
std::vector<std::int64_t> places(const verdict::Expected& expected) {
  const auto n = std::ssize(expected.exact.golden);
  const auto judged = [&](std::int64_t i) {
    return expected.exact.undefined.empty() ||
           !expected.exact.undefined[static_cast<std::size_t>(i)];
  };
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < n && chosen.empty(); ++i) {
    if (judged(i)) chosen.push_back(i);
  }
  for (std::int64_t i = n - 1; i >= 0 && chosen.size() == 1; --i) {
    if (judged(i)) chosen.push_back(i);
  }
  std::mt19937_64 random(9);
  while (chosen.size() < 12) {
    const auto i = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    if (judged(i)) chosen.push_back(i);
  }
  return chosen;
}

}  // namespace

TEST_CASE("planted: the exact result, rounded once, is EXACT") {
  for (const char* line : kCalls) {
    for (const auto& [contract, type] : kContracts) {
      CAPTURE(line);
      CAPTURE(contract);
      const Judged right(line, contract, type);
      const CaseReport report = right.judge_all();
      CHECK(report.verdict == Verdict::kExact);
      CHECK(report.precision_bits == 106);
      CHECK(report.contract == contract);
      CHECK(report.reason.empty());
      for (const TensorReport& t : report.tensors) {
        CHECK(t.verdict == Verdict::kExact);
        CHECK(t.out_of_budget + t.nan + t.inf + t.unwritten + t.undecided == 0);
        CHECK(t.compared + t.undefined == right.record.outputs.at(t.name).size());
        CHECK(t.compared == t.ulp_histogram[0]);  // all within half an ulp
        CHECK(t.max_ratio <= 1.0);
        CHECK(t.failing_rows.empty());
      }
    }
  }
}

TEST_CASE("planted: one element off by two budgets is found where it is") {
  int planted = 0;
  for (const char* line : kCalls) {
    for (const auto& [contract, type] : kContracts) {
      Judged call(line, contract, type);
      for (auto& [name, output] : call.record.outputs) {
        const verdict::Expected& expected = call.expected.outputs.at(name);
        const Budget budget(name, type, expected, *call.contract);
        for (const std::int64_t i : places(expected)) {
          const auto at = static_cast<std::size_t>(i);
          const double right = output[i];
          const double sign = i % 2 == 0 ? 1.0 : -1.0;
          // What nobody writes is granted nothing: the next number is wrong already.
          const double error =
              budget(at) > 0.0 ? 2 * budget(at) : call::ulp(type, expected.exact.golden[at]);
          output.set(i, expected.exact.golden[at] + sign * error);
          CAPTURE(line);
          CAPTURE(contract);
          CAPTURE(name);
          CAPTURE(i);
          const TensorReport report = call.judge(name);
          CHECK(report.verdict == Verdict::kOutOfBudget);
          CHECK(report.out_of_budget == 1);
          CHECK(report.max_ratio > 1.0);
          CHECK((report.max_ratio < 3.0) == (budget(at) > 0.0));
          REQUIRE(report.worst.has_value());
          CHECK(report.worst->index == call::unravel(expected.exact.shape, i));
          CHECK(report.worst->value == output[i]);
          CHECK(report.worst->golden == expected.exact.golden[at]);
          CHECK(report.worst->budget == budget(at));
          CHECK(report.worst->error == std::fabs(output[i] - expected.exact.golden[at]));
          REQUIRE(report.failing_rows.size() == 1);
          CHECK(report.failing_rows[0].row == report.worst->index[0]);
          CHECK(report.failing_rows[0].out_of_budget == 1);
          CHECK(report.failing_rows[0].nan == 0);
          CHECK(report.failing_rows[0].elements == output.size() / expected.exact.shape[0]);
          output.set(i, right);
          ++planted;
        }
        CHECK(call.judge(name).verdict == Verdict::kExact);  // all of them taken back
      }
    }
  }
  MESSAGE(planted, " planted errors found");
  CHECK(planted > 500);
}

TEST_CASE("planted: an error within the budget is no finding, and is not EXACT either") {
  for (const char* line : kCalls) {
    Judged call(line, "recurrent_f32", DType::kF32);
    for (auto& [name, output] : call.record.outputs) {
      CAPTURE(line);
      CAPTURE(name);
      const verdict::Expected& expected = call.expected.outputs.at(name);
      const Budget budget(name, DType::kF32, expected, *call.contract);
      bool moved = false;
      for (const std::int64_t i : places(expected)) {
        const auto at = static_cast<std::size_t>(i);
        const double y = expected.exact.golden[at] + 0.8 * budget(at);
        // What is stored may lie half an ulp further: only where the budget holds that as well.
        if (0.8 * budget(at) + 0.5 * call::ulp(DType::kF32, y) > budget(at)) continue;
        output.set(i, y);
        moved = true;
      }
      const TensorReport report = call.judge(name);
      CHECK(report.verdict == (moved ? Verdict::kWithinBudget : Verdict::kExact));
      CHECK(report.out_of_budget == 0);
      if (moved) CHECK(report.max_ratio > 0.5);
    }
  }
}

TEST_CASE("planted: several errors are counted by the row they are in") {
  Judged call("op=gdn mode=prefill lens=5,9 H=1 HV=2 K=16 V=12 gate=log", "recurrent_f32",
              DType::kF32);
  call::Tensor& o = call.record.outputs.at("o");
  for (const std::int64_t i : {3 * 24 + 5, 3 * 24 + 6, 11 * 24}) o.set(i, o[i] + 1.0);
  o.set(11 * 24 + 1, kNaN);
  const TensorReport report = call.judge("o");
  CHECK(report.out_of_budget == 4);
  REQUIRE(report.failing_rows.size() == 2);
  CHECK(report.failing_rows[0].row == 3);
  CHECK(report.failing_rows[0].out_of_budget == 2);
  CHECK(report.failing_rows[1].row == 11);
  CHECK(report.failing_rows[1].out_of_budget == 2);
  CHECK(report.failing_rows[1].nan == 1);
  CHECK(report.failing_rows[1].elements == 24);
  CHECK(to_string(coordinates(call.record, "o", report.worst->index)) ==
        "sequence 1, token 6, head 0, value 1");
}

TEST_CASE(
    "planted: one wrong tensor decides the case, and its neighbours say that they are right") {
  Judged call(kCalls.begin()[2], "recurrent_f32", DType::kF32);
  call::Tensor& state = call.record.outputs.at("final_state");
  state.set(17, state[17] + 0.5);
  const CaseReport report = call.judge_all();
  CHECK(report.verdict == Verdict::kOutOfBudget);
  CHECK(tensor(report, "final_state").verdict == Verdict::kOutOfBudget);
  CHECK(tensor(report, "o").verdict == Verdict::kExact);
  CHECK(tensor(report, "intermediate_states").verdict == Verdict::kExact);
}
