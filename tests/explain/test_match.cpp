// SPDX-License-Identifier: Apache-2.0
//
// What a predicted NaN may account for.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reference/calls/unwritten.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/match.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

const std::string kLine = "op=gdn mode=prefill lens=12 H=1 HV=2 K=16 V=8 gate=log io=f32";

struct Predicted {
  double value = calls::kUnwritten;
  float spread = 1e-6F;
};

// o of a right kernel with every element of the first `tokens` replaced, against the prediction
// that these tokens are not written, or `there`, and all others are right.
Match match(
    std::int64_t tokens, const std::function<double(std::int64_t, double)>& content,
    const std::function<double(double)>& elsewhere = [](double x) { return x; },
    const Predicted& there = {}) {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  Record record = make_call(kLine);
  record.contract = contract.name;
  const auto exact =
      calls::stored(record, contract, verdict::exact_outputs(delta::slice(), record));
  record.outputs["o"] = exact.at("o");
  call::Tensor& o = record.outputs.at("o");
  const std::int64_t written_from = tokens * o.shape()[1] * o.shape()[2];
  for (std::int64_t i = 0; i < o.size(); ++i) {
    o.set(i, i < written_from ? content(i, o[i]) : elsewhere(o[i]));
  }
  const auto judged = verdict::judgement(
      delta::slice(), record, {.contract = contract, .precision = scalar::Precision::kDouble});
  const Capture capture = make_capture(judged);
  Prediction prediction;
  PredictedOutput& predicted = prediction.outputs["o"];
  predicted.value = judged.expected.outputs.at("o").exact.golden;
  predicted.spread.assign(predicted.value.size(), 1e-6F);
  std::fill_n(predicted.value.begin(), written_from, there.value);
  std::fill_n(predicted.spread.begin(), written_from, there.spread);
  return Matcher(capture).match(prediction);
}

double same(double x) { return x; }

double junk(std::int64_t i, double) { return 3.0 + std::sin(static_cast<double>(i)); }

TEST_CASE("match: NaN, one number and junk are what an unwritten token may hold") {
  for (const auto& content : std::vector<std::function<double(std::int64_t, double)>>{
           [](std::int64_t, double) { return std::nan(""); },
           [](std::int64_t, double) { return 0.0; }, [](std::int64_t, double) { return -7.5; },
           junk}) {
    const Match m = match(4, content);
    CHECK(m.failing == 0);
    CHECK(m.accounted == 1.0);
  }
  CHECK(match(4, junk).guessed == 64);
  CHECK(match(4, [](std::int64_t, double) { return std::nan(""); }).guessed == 0);
}

TEST_CASE("match: a predicted NaN accounts for no finite number in a tensor that is wrong") {
  const Match m = match(4, junk, [](double x) { return 1.5 * x; });
  CHECK(m.accounted == 0.0);
  CHECK(m.guessed == 0);
  CHECK(m.failing == 192);
  // Nor where nothing is predicted beside it.
  CHECK(match(12, junk).accounted == 0.0);
}

TEST_CASE("match: what resembles the results was written") {
  CHECK(match(4, [](std::int64_t, double x) { return 1.1 * x; }).accounted == 0.0);
  CHECK(match(4, [](std::int64_t i, double x) {
          return x * (1.0 + 0.5 * std::sin(static_cast<double>(i)));
        }).accounted == 0.0);
}

TEST_CASE("match: a NaN that a mistake computes is a NaN, and no number") {
  const Predicted computed{.value = std::nan("")};
  const auto filled_with = [&](double x) {
    return match(
        4, [x](std::int64_t, double) { return x; }, same, computed);
  };
  CHECK(filled_with(std::nan("")).accounted == 1.0);
  CHECK(filled_with(calls::kUnwritten).accounted == 1.0);
  for (const double x : {0.0, -7.5, HUGE_VAL}) {
    CAPTURE(x);
    CHECK(filled_with(x).failing == 64);
    CHECK(filled_with(x).accounted == 0.0);
  }
  CHECK(match(4, junk, same, computed).failing == 64);
}

TEST_CASE("match: what no kernel writes is told by its bits in every type") {
  for (const call::DType type : {call::DType::kF64, call::DType::kF32}) {
    call::Tensor t(type, {1}, std::vector<double>{calls::kUnwritten});
    CHECK(calls::is_unwritten(t[0]));
    CHECK(calls::is_unwritten(-t[0]));
  }
  CHECK_FALSE(calls::is_unwritten(std::nan("")));
  CHECK_FALSE(calls::is_unwritten(HUGE_VAL - HUGE_VAL));
  std::vector<double> values{1.0, calls::kUnwritten};
  calls::fill_unwritten(values);
  CHECK(values[0] == 1.0);
  CHECK(std::isnan(values[1]));
  CHECK_FALSE(calls::is_unwritten(values[1]));
}

TEST_CASE("match: an element that the prediction does not bound is no evidence for it") {
  const Predicted unbounded{.value = 1.0, .spread = std::numeric_limits<float>::infinity()};
  const Match m = match(4, junk, same, unbounded);
  CHECK(m.failing == 0);
  CHECK(m.unbounded == 64);
  CHECK(m.accounted == 0.0);
}

TEST_CASE("match: junk is not right by chance") {
  const Match m = match(4, [](std::int64_t i, double x) { return i == 7 ? x : junk(i, x); });
  CHECK(m.failing == 1);
}

}  // namespace
}  // namespace goldenrule::explain::test
