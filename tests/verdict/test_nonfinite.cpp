// SPDX-License-Identifier: Apache-2.0
//
// NaN and Inf, in outputs and in inputs: in an output where the exact result is a number they are
// findings, and where the inputs make the exact result undefined a number is one. What a NaN in the
// inputs excuses is what it reaches by the rule, and nothing else.
#include <doctest/doctest.h>

#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/slice.hpp"
#include "tests/verdict/support.hpp"

using namespace goldenrule;
using namespace goldenrule::verdict;
using namespace goldenrule::verdict::test;
using call::DType;

namespace {

constexpr const char* kPrefill = "op=gdn mode=prefill lens=4,3 H=1 HV=2 K=8 V=6 gate=log h0=1";

// Elements of o of one sequence of kPrefill.
bool is_of_sequence(std::int64_t i, std::int64_t sequence) {
  const std::int64_t token = i / 12;
  return sequence == 0 ? token < 4 : token >= 4;
}

}  // namespace

TEST_CASE("nonfinite: one NaN, one Inf") {
  for (const char* line : kCalls) {
    for (const double bad : {kNaN, kInf, -kInf}) {
      Judged call(line, "recurrent_f32", DType::kF32);
      for (auto& [name, output] : call.record.outputs) {
        CAPTURE(line);
        CAPTURE(name);
        CAPTURE(bad);
        const std::int64_t i = 1;  // of the first row, which is never padded
        output.set(i, bad);
        const TensorReport report = call.judge(name);
        CHECK(report.verdict == Verdict::kOutOfBudget);
        CHECK(report.out_of_budget == 1);
        CHECK(report.nan == (std::isnan(bad) ? 1 : 0));
        CHECK(report.inf == (std::isnan(bad) ? 0 : 1));
        CHECK(report.unwritten == 0);
        CHECK(report.max_ratio == kInf);
        REQUIRE(report.worst.has_value());
        CHECK(report.worst->index == call::unravel(report.shape, i));
        CHECK(std::isfinite(report.rms_rel));  // over the finite elements
      }
    }
  }
}

TEST_CASE("nonfinite: rows that nobody wrote") {
  Judged call(kPrefill, "recurrent_f32", DType::kF32);
  call::Tensor& o = call.record.outputs.at("o");
  for (std::int64_t i = 3 * 12; i < 3 * 12 + 6; ++i) o.set(i, kNaN);       // token 3, head 0
  for (std::int64_t i = 5 * 12 + 6; i < 5 * 12 + 11; ++i) o.set(i, kNaN);  // all but one of a row
  const TensorReport report = call.judge("o");
  CHECK(report.nan == 11);
  CHECK(report.unwritten == 6);
  CHECK(report.out_of_budget == 11);
  CHECK(report.worst->index == call::Shape{3, 0, 0});
  REQUIRE(report.failing_rows.size() == 2);
  CHECK(report.failing_rows[0].nan == 6);
  CHECK(report.failing_rows[1].nan == 5);
}

TEST_CASE("nonfinite: a NaN in the inputs of one sequence") {
  for (const auto precision :
       {scalar::Precision::kDouble, scalar::Precision::kQuad, scalar::Precision::kMulti}) {
    Judged call(kPrefill, "recurrent_f32", DType::kF32);
    call.record.inputs.at("k").set(4 * 8 + 2, kNaN);  // the first token of sequence 1
    const verdict::Expectations expected =
        verdict::expect(delta::slice(), call.record, *call.contract, precision);
    const auto judge_o = [&] {
      return judge("o", call.record.outputs.at("o"), expected.outputs.at("o"), *call.contract);
    };
    call::Tensor& o = call.record.outputs.at("o");
    // The outputs are those of the clean call: sequence 0 is right, sequence 1 is now wrong.
    TensorReport report = judge_o();
    CHECK(report.verdict == Verdict::kOutOfBudget);
    CHECK(report.out_of_budget == 3 * 12);
    CHECK(report.worst->index == call::Shape{4, 0, 0});
    // Not finite where golden is not: no finding.
    for (std::int64_t i = 0; i < o.size(); ++i) {
      if (is_of_sequence(i, 1)) o.set(i, i % 2 == 0 ? kNaN : kInf);
    }
    report = judge_o();
    CHECK(report.verdict == Verdict::kExact);
    CHECK(report.nan == 0);
    // A NaN that escaped to the other sequence is one.
    o.set(0, kNaN);
    report = judge_o();
    CHECK(report.verdict == Verdict::kOutOfBudget);
    CHECK(report.nan == 1);
    CHECK(report.out_of_budget == 1);
    CHECK(report.worst->index == call::Shape{0, 0, 0});
  }
}

TEST_CASE("nonfinite: what an input reaches by the rule") {
  struct Row {
    const char* name;
    std::int64_t element;      // of token 1 of sequence 0, head 0 or channel 0
    std::int64_t first_token;  // of o, from which on a number cannot be
    std::int64_t tokens;
    bool one_column;  // v and nothing else stays in its value column
    bool state;       // whether the final state is lost
  };
  const Row rows[] = {{"q", 8, 1, 1, false, false}, {"k", 8, 1, 3, false, true},
                      {"v", 12, 1, 3, true, true},  {"g", 2, 1, 3, false, true},
                      {"b", 2, 1, 3, false, true},  {"initial_state", 0, 0, 4, true, true}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    call::Record record = record_of(kPrefill);
    record.inputs.at(row.name).set(row.element, kNaN);
    const verdict::Expectations e =
        delta::evaluate(record, scalar::Precision::kDouble, verdict::EvaluationOptions{});
    const bool both_heads = std::string(row.name) == "q" || std::string(row.name) == "k";
    int wrong = 0;
    const verdict::Expected& o = e.outputs.at("o");
    for (std::int64_t i = 0; i < std::ssize(o.exact.golden); ++i) {
      const std::int64_t token = i / 12;
      const bool reached = token >= row.first_token && token < row.first_token + row.tokens &&
                           (both_heads || i / 6 % 2 == 0) && (!row.one_column || i % 6 == 0);
      wrong += std::isfinite(o.exact.golden[static_cast<std::size_t>(i)]) == reached ? 1 : 0;
    }
    CHECK(wrong == 0);
    const verdict::Expected& state = e.outputs.at("final_state");
    for (std::int64_t i = 0; i < std::ssize(state.exact.golden); ++i) {
      const bool first = i < 2 * 48;  // sequence 0
      const bool reached = row.state && first && (both_heads || i / 48 % 2 == 0) &&
                           (!row.one_column || i / 8 % 6 == 0);
      const double z = state.exact.golden[static_cast<std::size_t>(i)];
      // A lost column is lost as far as its keys reach; all channels of a key are non-zero here.
      wrong += std::isfinite(z) == reached ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("nonfinite: every tier agrees where the exact result is a number") {
  const std::initializer_list<const char*> lines{
      kPrefill, "op=kda mode=prefill lens=4,3 H=1 HV=2 K=8 V=6 gate=bounded h0=1",
      "op=gdn mode=mtp B=3 T=3 H=1 HV=2 K=8 V=6 gate=softplus",
      "op=kda mode=decode B=3 H=1 HV=2 K=8 V=6 gate=softplus beta=direct",
      "op=gdn mode=decode B=3 H=1 HV=2 K=8 V=6 gate=linear qk_l2norm=max_norm_eps"};
  int calls = 0;
  for (const char* line : lines) {
    const call::Record clean = record_of(line);
    for (const auto& [name, input] : clean.inputs) {
      if (!call::info(input.dtype()).is_float) continue;
      for (const double bad : {kNaN, kInf, -kInf}) {
        CAPTURE(line);
        CAPTURE(name);
        CAPTURE(bad);
        call::Record record = clean;
        record.inputs.at(name).set(0, bad);
        const verdict::EvaluationOptions options;
        const auto d = delta::evaluate(record, scalar::Precision::kDouble, options);
        const auto q = delta::evaluate(record, scalar::Precision::kQuad, options);
        const auto m = delta::evaluate(record, scalar::Precision::kMulti, options);
        int differing = 0;
        int outside = 0;
        for (const auto& [output, x] : d.outputs) {
          for (std::size_t i = 0; i < x.exact.golden.size(); ++i) {
            const double exact = m.outputs.at(output).exact.golden[i];
            const verdict::Expected& y = q.outputs.at(output);
            const bool finite = std::isfinite(exact);
            differing += std::isfinite(x.exact.golden[i]) == finite ? 0 : 1;
            differing += std::isfinite(y.exact.golden[i]) == finite ? 0 : 1;
            if (!finite) continue;
            const auto within = [&](const verdict::Expected& e) {
              return std::fabs(e.exact.golden[i] - exact) <=
                     static_cast<double>(e.exact.radius[i]) +
                         static_cast<double>(m.outputs.at(output).exact.radius[i]);
            };
            outside += within(x) && within(y) ? 0 : 1;
          }
        }
        CHECK(differing == 0);
        CHECK(outside == 0);
        ++calls;
      }
    }
  }
  CHECK(calls > 90);
}

TEST_CASE("nonfinite: inputs are counted and said") {
  Judged call(kPrefill, "recurrent_f32", DType::kF32);
  CHECK(call.judge_all().nonfinite_inputs == 0);
  call.record.inputs.at("q").set(0, kNaN);
  call.record.inputs.at("v").set(3, kInf);
  call.record.inputs.at("initial_state").set(5, -kInf);
  CHECK(call.judge_all().nonfinite_inputs == 3);
}

TEST_CASE("nonfinite: a decay of minus infinity erases the state, exactly") {
  Judged call(kPrefill, "recurrent_f32", DType::kF32);
  for (std::int64_t head = 0; head < 2; ++head) call.record.inputs.at("g").set(head, -kInf);
  set_right_outputs(call.record, expect(call.record, *call.contract), DType::kF32);
  call.record.inputs.at("initial_state").set(0, 1e30);  // it must not matter
  const CaseReport report = judge_record(delta::slice(), call.record, {.contract = *call.contract});
  CHECK(report.verdict == Verdict::kExact);
  CHECK(report.nonfinite_inputs == 2);
}

TEST_CASE("nonfinite: rows of padded requests") {
  Judged call("op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=8 V=6 slots=padded", "recurrent_f32",
              DType::kF32);
  // Row 2 is padded. Its intermediate states are nobody's: garbage, NaN, anything.
  call::Tensor& states = call.record.outputs.at("intermediate_states");
  const std::int64_t row = 3 * 2 * 48;
  for (std::int64_t i = 2 * row; i < 3 * row; ++i) states.set(i, i % 3 == 0 ? kInf : 1e9);
  TensorReport report = call.judge("intermediate_states");
  CHECK(report.verdict == Verdict::kExact);
  CHECK(report.undefined == row);
  CHECK(report.compared == 3 * row);
  states.set(2 * row - 1, kNaN);  // the last element of row 1 is judged
  CHECK(call.judge("intermediate_states").out_of_budget == 1);
  states.set(2 * row - 1, call.expected.outputs.at("intermediate_states")
                              .exact.golden[static_cast<std::size_t>(2 * row - 1)]);
  states.set(3 * row, 1e9);  // and so is the first of row 3
  CHECK(call.judge("intermediate_states").out_of_budget == 1);
  // Its output is zero, and that is judged.
  call::Tensor& o = call.record.outputs.at("o");
  CHECK(call.judge("o").verdict == Verdict::kExact);
  o.set(2 * 36 + 1, 1e-3);
  report = call.judge("o");
  CHECK(report.verdict == Verdict::kOutOfBudget);
  CHECK(report.worst->index == call::Shape{2, 0, 0, 1});
  o.set(2 * 36 + 1, kNaN);
  CHECK(call.judge("o").verdict == Verdict::kOutOfBudget);
}

TEST_CASE("nonfinite: golden values are handed over with NaN where no kernel writes") {
  const call::Record record =
      cases::make_record(cases::parse("op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=6 slots=padded"));
  Expectations expected = delta::evaluate(record, scalar::Precision::kDouble, {});
  std::size_t unwritten = 0;
  for (auto& [name, e] : expected.outputs) {
    CAPTURE(name);
    const std::vector<double> golden = e.exact.golden;
    const std::vector<double> output = e.exact.take_output();
    REQUIRE(output.size() == golden.size());
    for (std::size_t i = 0; i < output.size(); ++i) {
      const bool defined = e.exact.is_defined(i);
      CHECK((defined ? output[i] == golden[i] : std::isnan(output[i])));
      unwritten += defined ? 0 : 1;
    }
  }
  CHECK(unwritten == 2 * 2 * 8 * 6);  // the intermediate states of the padded row
}
