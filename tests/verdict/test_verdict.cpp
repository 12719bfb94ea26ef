// SPDX-License-Identifier: Apache-2.0
//
// The verdicts themselves: when a pass says nothing, when the oracle must work harder, what is
// reported beside the verdict, and how parts make a whole.
#include <doctest/doctest.h>

#include <array>

#include "reference/calls/kernel.hpp"
#include "reference/delta/calls/rows.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/budget.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using namespace goldenrule::verdict::test;
using call::DType;

namespace {

constexpr const char* kLine = "op=gdn mode=decode B=3 H=1 HV=2 K=16 V=12 gate=log beta=direct";

void fill(call::Tensor& t, double x) {
  for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, x);
}

// A contract that grants roundings this coarse.
contract::Contract coarse(double unit_roundoff) {
  contract::Contract c = contract::find_contract("recurrent_f32");
  c.name = "coarse";
  std::get<contract::Recurrent>(c.model).unit_roundoff = unit_roundoff;
  return c;
}

}  // namespace

TEST_CASE("verdict: all zeros where the exact result is not") {
  Judged call(kLine, "recurrent_f32", DType::kF32);
  fill(call.record.outputs.at("o"), 0.0);
  // Beyond the budget that is what it is.
  CHECK(call.judge("o").verdict == Verdict::kOutOfBudget);
  // Within a budget that is coarse enough it says nothing.
  const contract::Contract contract = coarse(0.25);
  CaseReport report = judge_record(delta::slice(), call.record, {.contract = contract});
  const TensorReport& o = tensor(report, "o");
  REQUIRE(o.out_of_budget == 0);
  CHECK(o.verdict == Verdict::kMistrusted);
  CHECK(o.reason == "every output is zero, the exact result is not");
  CHECK(report.verdict == Verdict::kMistrusted);
  CHECK(report.reason ==
        "final_state: what the contract grants is as large as the signal in 72 channels of rows "
        "and heads");
}

TEST_CASE("verdict: zeros that are right say nothing") {
  // scale = 0: every o is exactly 0, and a buffer that was only cleared is as right.
  Judged call("op=gdn mode=decode B=3 H=1 HV=2 K=16 V=12 scale=0", "recurrent_f32", DType::kF32);
  CHECK(call.judge("o").verdict == Verdict::kMistrusted);
  CHECK(call.judge("o").reason.starts_with("every exact value that the rule computes is 0"));
  call.record.outputs.at("o").set(3, 1e-30);
  CHECK(call.judge("o").verdict == Verdict::kOutOfBudget);
}

TEST_CASE("verdict: a budget as large as the signal") {
  const Judged call(kLine, "recurrent_f32", DType::kF32);
  const contract::Contract contract = coarse(0.25);
  const TensorReport o = judge("o", call.record.outputs.at("o"),
                               expect(call.record, contract).outputs.at("o"), contract);
  CHECK(o.verdict == Verdict::kMistrusted);  // though every element is the exact one
  CHECK(o.reason ==
        "what the contract grants is as large as the signal in 72 channels of rows and heads");
  CHECK(o.vacuous == 72);
  CHECK(o.first_unjudged == call::Shape{0, 0, 0, 0});
  CHECK(call.judge("o").verdict == Verdict::kExact);
}

TEST_CASE("verdict: keys that nobody normalised are the likely cause of growing states") {
  const auto cause_of = [](const char* norm, double factor) {
    call::Record record = record_of(std::string("op=gdn mode=prefill lens=120 H=1 HV=1 K=16 V=8 "
                                                "gate=log beta=direct qk_l2norm=") +
                                    norm);
    calls::change(record.inputs.at("k"), [&](std::int64_t, double x) { return factor * x; });
    const contract::Contract& contract = delta::slice().default_contract(record);
    record.outputs = calls::stored(record, contract, delta::slice().emulate(record, contract, 3));
    return judge_record(delta::slice(), record, {}).likely_cause;
  };
  const std::string cause = cause_of("none", 8.0);
  CAPTURE(cause);
  CHECK(cause.starts_with("keys are not normalised (|k|^2 = "));
  CHECK(cause.find("at k[") != std::string::npos);
  CHECK(cause_of("none", 1.0).empty());
  CHECK(cause_of("rsqrt_sum_eps", 8.0).empty());
}

// Elements of a call may fail beside those that no finite budget bounds.
TEST_CASE("verdict: a wrong call whose keys nobody normalised has a likely cause too") {
  call::Record record = record_of(
      "op=gdn mode=prefill lens=120 H=1 HV=1 K=16 V=8 gate=log beta=direct qk_l2norm=none");
  calls::change(record.inputs.at("k"), [](std::int64_t, double x) { return 8.0 * x; });
  const contract::Contract& contract = delta::slice().default_contract(record);
  record.outputs = calls::stored(record, contract, delta::slice().emulate(record, contract, 3));
  call::Tensor& o = record.outputs.at("o");
  for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, 1.0);
  const CaseReport report = judge_record(delta::slice(), record, {});
  CHECK(report.verdict == Verdict::kOutOfBudget);
  CHECK(report.likely_cause.starts_with("keys are not normalised (|k|^2 = "));
}

// What a kernel may flush behind the largest number of a call must not vouch for other requests.
TEST_CASE("verdict: one huge state is no budget for other requests") {
  call::Record record = record_of("op=gdn mode=decode B=2 H=1 HV=1 K=16 V=12");
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  record.inputs.at("initial_state").set(0, 3e38);
  const Expectations expected = expect(record, contract);
  set_right_outputs(record, expected, DType::kF32);
  call::Tensor& o = record.outputs.at("o");
  for (const std::int64_t at : {std::int64_t{0}, o.size() - 1}) o.set(at, o[at] + 1.0);
  CHECK(judge("o", o, expected.outputs.at("o"), contract).out_of_budget >= 1);
}

TEST_CASE("verdict: an undecided element moves the oracle to a wider tier") {
  // Outputs in f64 have a budget of half an ulp of double, far below the radius of that tier.
  Judged call(kLine, "ideal", DType::kF64);
  const CaseReport d =
      judge_record(delta::slice(), call.record,
                   {.contract = *call.contract, .precision = scalar::Precision::kDouble});
  std::int64_t undecided = 0;
  for (const TensorReport& t : d.tensors) undecided += t.undecided;
  CHECK(undecided > 0);
  CHECK(d.verdict == Verdict::kMistrusted);  // no tier but this one was to be asked
  CHECK(d.precision_bits == 53);
  const CaseReport automatic =
      judge_record(delta::slice(), call.record, {.contract = *call.contract});
  CHECK(automatic.precision_bits == 106);
  CHECK(automatic.verdict == Verdict::kExact);
  // One ulp off: no tier can decide, since golden itself is rounded to double.
  call::Tensor& o = call.record.outputs.at("o");
  o.set(5, std::nextafter(o[5], kInf));
  const CaseReport last = judge_record(delta::slice(), call.record, {.contract = *call.contract});
  CHECK(last.precision_bits == 168);
  CHECK(tensor(last, "o").undecided == 1);
  CHECK(tensor(last, "o").first_unjudged == call::unravel(o.shape(), 5));
  CHECK(last.verdict == Verdict::kMistrusted);
  // Two are beyond doubt.
  o.set(5, std::nextafter(std::nextafter(o[5], kInf), kInf));
  const CaseReport wrong = judge_record(delta::slice(), call.record, {.contract = *call.contract});
  CHECK(wrong.verdict == Verdict::kOutOfBudget);
  // A narrow type is decided at once.
  const Judged narrow(kLine, "recurrent_f32", DType::kF32);
  CHECK(
      judge_record(delta::slice(), narrow.record, {.contract = *narrow.contract}).precision_bits ==
      53);
}

TEST_CASE("verdict: an oracle without a radius passes nothing and refuses nothing") {
  Judged call(kLine, "recurrent_f32", DType::kF32);
  verdict::Expected expected = call.expected.outputs.at("o");
  std::ranges::fill(expected.exact.radius, std::numeric_limits<float>::infinity());
  call::Tensor& o = call.record.outputs.at("o");
  for (const double y : {1e6, kInf, kNaN}) {
    o.set(0, y);
    const TensorReport report = judge("o", o, expected, *call.contract);
    CHECK(report.verdict == Verdict::kError);
    CHECK(report.unbounded == o.size());
    CHECK(report.out_of_budget == 0);
    CHECK(report.first_unjudged == call::Shape{0, 0, 0, 0});
  }
  // Beside a failure that is certain, that is what counts.
  expected.exact.radius[3] = 0.0F;
  o.set(3, 1e6);
  CHECK(judge("o", o, expected, *call.contract).verdict == Verdict::kOutOfBudget);
}

TEST_CASE("verdict: the figures beside it") {
  Judged call(kLine, "recurrent_f32", DType::kF32);
  const verdict::Expected& expected = call.expected.outputs.at("o");
  call::Tensor& o = call.record.outputs.at("o");
  // Up to six ulps above what they should be.
  double error2 = 0.0, golden2 = 0.0, max_abs = 0.0, signed_error = 0.0, absolute = 0.0;
  std::array<std::int64_t, kUlpBuckets> histogram{};
  for (std::int64_t i = 0; i < o.size(); ++i) {
    const double golden = expected.exact.golden[static_cast<std::size_t>(i)];
    const double spacing = call::ulp(DType::kF32, golden);
    o.set(i, golden + static_cast<double>(i % 7) * spacing);
    const double error = o[i] - golden;
    error2 += error * error;
    golden2 += golden * golden;
    signed_error += error;
    absolute += std::fabs(error);
    max_abs = std::fmax(max_abs, std::fabs(error));
    const double ulps = std::fabs(error) / spacing;
    std::size_t bucket = 0;  // at most 1/2; at most 1, 2, 4, 8, ...
    for (double limit = 0.5; ulps > limit; limit *= 2) ++bucket;
    ++histogram[bucket];
  }
  const TensorReport report = call.judge("o");
  CHECK(report.rms_rel == doctest::Approx(std::sqrt(error2 / golden2)).epsilon(1e-12));
  CHECK(report.max_abs == max_abs);
  CHECK(report.bias == doctest::Approx(signed_error / absolute).epsilon(1e-12));
  CHECK(report.bias > 0.5);
  CHECK(report.ulp_histogram == histogram);
  const Budget budget("o", DType::kF32, expected, *call.contract);
  std::vector<double> ratios;
  for (std::int64_t i = 0; i < o.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double error = std::fabs(o[i] - expected.exact.golden[at]);
    ratios.push_back(std::fmax(error - static_cast<double>(expected.exact.radius[at]), 0.0) /
                     budget(at));
  }
  std::ranges::sort(ratios);
  CHECK(report.max_ratio == ratios.back());
  CHECK(report.median_ratio == doctest::Approx(ratios[ratios.size() / 2]).epsilon(1e-6));
}

TEST_CASE("verdict: nothing to judge") {
  call::Record none = record_of(kLine);
  CaseReport report =
      judge_record(delta::slice(), none, {.contract = contract::find_contract("ideal")});
  CHECK(report.verdict == Verdict::kSkipped);
  CHECK(report.reason == "no tensor under /outputs");
  call::Record empty = record_of("op=gdn mode=prefill lens=0 H=1 HV=1 K=4 V=2 gate=log");
  empty.outputs["o"] = call::Tensor(DType::kF32, {0, 1, 2});
  report =
      judge_record(delta::slice(), empty, {.contract = contract::find_contract("recurrent_f32")});
  CHECK(report.verdict == Verdict::kSkipped);
  CHECK(report.reason == "the call applies the rule to no token");
}

TEST_CASE("verdict: a call that asks for no checkpoint is judged by its other outputs") {
  Judged call("op=gdn mode=prefill lens=20,3 H=1 HV=1 K=8 V=8 gate=log checkpoints=after",
              "recurrent_f32", DType::kF32);
  const auto verdict = [&] {
    return judge_record(delta::slice(), call.record, {.contract = *call.contract}).verdict;
  };
  REQUIRE(call.record.inputs.at("checkpoint_offsets").size() == 0);
  REQUIRE(call.record.outputs.at("checkpoints").size() == 0);
  CHECK(verdict() == Verdict::kExact);
  call.record.outputs.erase("checkpoints");
  CHECK(verdict() == Verdict::kExact);
  call.record.outputs.erase("o");
  CHECK(verdict() == Verdict::kSkipped);
}

TEST_CASE("verdict: a tensor for which the contract gives no budget") {
  // The chunk form has no states between its chunks to compare intermediate ones with.
  Judged call("op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=16 V=12", "chunk16_bf16_state", DType::kF32);
  call.record.outputs.at("intermediate_states").set(0, 1e3);
  const TensorReport report = call.judge("intermediate_states");
  CHECK(report.verdict == Verdict::kSkipped);
  CHECK(report.reason.find("chunk16_bf16_state gives no budget") != std::string::npos);
  CHECK(report.max_abs > 900.0);
  CHECK(report.out_of_budget == 0);
  CHECK(std::isnan(report.max_ratio));
  CHECK(std::isnan(report.worst->budget));
  CHECK(report.worst->value == 1e3);
}

TEST_CASE("verdict: an output of another shape") {
  const Judged call(kLine, "recurrent_f32", DType::kF32);
  CHECK_THROWS_WITH_AS((void)judge("o", call::Tensor(DType::kF32, {3, 1, 2, 11}),
                                   call.expected.outputs.at("o"), *call.contract),
                       "/outputs/o: expected [3,1,2,12], actual [3,1,2,11]", Error);
}

TEST_CASE("verdict: of a whole from those of its parts") {
  using enum Verdict;
  const struct {
    std::vector<Verdict> parts;
    Verdict whole;
  } rows[] = {{{}, kSkipped},
              {{kSkipped}, kSkipped},
              {{kExact}, kExact},
              {{kExact, kSkipped}, kSkipped},
              {{kExact, kWithinBudget}, kWithinBudget},
              {{kWithinBudget, kSkipped}, kSkipped},
              {{kMistrusted, kSkipped}, kMistrusted},
              {{kWithinBudget, kMistrusted, kExact}, kMistrusted},
              {{kMistrusted, kError}, kError},
              {{kSkipped, kError}, kError},
              {{kError, kMistrusted, kOutOfBudget, kExact}, kOutOfBudget},
              {{kOutOfBudget, kSkipped}, kOutOfBudget}};
  for (const auto& row : rows) CHECK(combine(row.parts) == row.whole);
  const std::array names{"EXACT",      "WITHIN_BUDGET", "OUT_OF_BUDGET",
                         "MISTRUSTED", "SKIPPED",       "ERROR"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(name_of(static_cast<Verdict>(i)) == names[i]);
  }
}
