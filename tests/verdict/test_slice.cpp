// SPDX-License-Identifier: Apache-2.0
//
// The seam between the neutral parts and an operation: a toy, the element-wise decay of a state,
// with a slice of its own that shares nothing with the delta rule. It is judged, explained,
// measured against other contracts and pointed at by coordinates by parts that do not know it.
//
//   final_state[slot,j] = exp(g[b,j]) initial_state[slot,j],   o = v
#include <doctest/doctest.h>

#include <cmath>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/explain/blind.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/explain/permits.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/terms.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::verdict {
namespace {

using call::Record;

// Outputs in which f(factor, x) takes the place of factor * x.
template <class F>
Expectations decayed(const Record& record, F&& f) {
  const call::Plan plan = call::make_plan(record, false);
  const call::Tensor& g = record.inputs.at("g");
  const call::Tensor& state = record.inputs.at("initial_state");
  const std::int64_t size = plan.dims.state_size();
  Expectations result;
  const auto add = [&](const char* name, const call::Tensor& from, std::size_t block) {
    Exact& e = result.outputs[name].exact;
    e.shape = from.shape();
    e.golden = from.to_doubles();
    e.radius.assign(e.golden.size(), 0.0F);
    e.block = block;
    e.touched.assign(e.golden.size() / block, Touch::kComputed);
    return &e;
  };
  add("o", record.inputs.at("v"), static_cast<std::size_t>(plan.dims.V));
  Exact& final_state = *add("final_state", state, static_cast<std::size_t>(size));
  std::fill(final_state.touched.begin(), final_state.touched.end(), Touch::kKept);
  for (const call::Sequence& row : plan.sequences) {
    for (std::int64_t j = 0; j < plan.dims.HV; ++j) {
      const std::int64_t block = row.start_block * plan.dims.HV + j;
      final_state.touched[static_cast<std::size_t>(block)] = Touch::kComputed;
      for (std::int64_t i = block * size; i < (block + 1) * size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        final_state.golden[at] = f(g[row.first_token * plan.dims.HV + j], state[i]);
        final_state.radius[at] = 1e-14F;
      }
    }
  }
  return result;
}

Expectations evaluate(const Record& record, scalar::Precision, const EvaluationOptions&) {
  return decayed(record, [](double g, double x) { return std::exp(g) * x; });
}

// exp to 2 ulp and one product.
void grant(const Record&, const contract::Contract&, GrantDetail detail, Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    e.grant = {};
    e.grant.given = true;
    for (const double x : e.exact.golden) {
      e.grant.spread.push_back(static_cast<float>(std::fabs(x) * 0x1p-21));
    }
    if (detail == GrantDetail::kTerms) {
      e.grant.sigma.assign(e.grant.spread.size(), 0.0F);
      e.grant.bias = e.grant.spread;
    }
  }
}

call::TensorMap emulate(const Record& record, const contract::Contract&, std::uint64_t) {
  const Expectations outputs = decayed(record, [](double g, double x) {
    return static_cast<double>(std::exp(static_cast<float>(g)) * static_cast<float>(x));
  });
  call::TensorMap result;
  for (const auto& [name, e] : outputs.outputs) {
    result[name] = call::Tensor(call::DType::kF64, e.exact.shape, e.exact.golden);
  }
  return result;
}

call::TensorMap with_gates(const Record& record, const calls::Kernel& kernel, double factor) {
  Record changed = record;
  std::vector<double> g = record.inputs.at("g").to_doubles();
  for (double& x : g) x *= factor;
  changed.inputs["g"] = call::Tensor(call::DType::kF64, record.inputs.at("g").shape(), g);
  return kernel(changed);
}

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> table{
      {.name = "toy_base_2",
       .group = "toy",
       .meaning = "reads the gate as a logarithm to base 2",
       .applies = [](const Record&) { return true; },
       .commit = [](const Record& r,
                    const calls::Kernel& k) { return with_gates(r, k, std::log(2)); }},
      {.name = "toy_no_decay",
       .group = "toy",
       .meaning = "does not decay the state",
       .applies = [](const Record&) { return true; },
       .commit = [](const Record& r, const calls::Kernel& k) { return with_gates(r, k, 0.0); }}};
  return table;
}

const contract::Contract& default_contract(const Record&) {
  return contract::find_contract("recurrent_f32");
}

const Slice kToy{.evaluate = evaluate,
                 .grant = grant,
                 .grant_seconds = nullptr,
                 .settle = nullptr,
                 .confirm = nullptr,
                 .emulate = emulate,
                 .mistakes = mistakes,
                 .generated = nullptr,
                 .capture_mistakes = nullptr,
                 .find = nullptr,
                 .likely_cause = nullptr,
                 .default_contract = default_contract,
                 .memory_needed = nullptr,
                 .stages = nullptr,
                 .telling_suites = {}};

Record captured(const std::function<call::TensorMap(const Record&, const calls::Kernel&)>& commit) {
  Record record = cases::make_record(
      cases::parse("op=gdn mode=decode B=4 H=1 HV=2 K=8 V=12 gate=log slots=permuted P=6 seed=3"));
  const contract::Contract& contract = default_contract(record);
  record.outputs =
      calls::stored(record, contract, commit(record, emulated_kernel(kToy, contract, 1)));
  return record;
}

TEST_CASE("slice: a toy operation passes where its kernel is honest") {
  const Judgement judged = judgement(
      kToy, captured([](const Record& r, const calls::Kernel& kernel) { return kernel(r); }));
  CHECK(judged.report.verdict == Verdict::kWithinBudget);
  CHECK(judged.contract_origin == "by mode and types");
  CHECK(explain::tightest_permit(judged).has_value());  // another contract grants the same here
  // A capture of one decay cannot hide either mistake.
  CHECK(explain::find_blindness(judged).mistakes.empty());
  const Terms terms = terms_of(judged, parse_element("final_state[0,1,3,2]"));
  CHECK(terms.passes);
  CHECK(terms.bias > 0.0);
}

TEST_CASE("slice: each mistake of a toy operation is refused, located and named") {
  for (const calls::Mistake& mistake : mistakes()) {
    CAPTURE(mistake.name);
    const Judgement judged = judgement(kToy, captured(mistake.commit));
    CHECK(judged.report.verdict == Verdict::kOutOfBudget);
    REQUIRE(judged.report.tensors.size() == 2);
    CHECK(judged.report.tensors[1].verdict == Verdict::kExact);  // o is a copy of v
    const TensorReport& state = judged.report.tensors[0];
    CHECK(state.name == "final_state");
    CHECK(state.row_word == "slot");
    CHECK(state.failing_rows.size() == 4);  // two of six slots are nobody's
    CHECK(state.worst->coordinates.front().first == "slot");
    const explain::Diagnosis diagnosis = explain::diagnose(judged, kToy.mistakes());
    REQUIRE_FALSE(diagnosis.explanations.empty());
    CHECK(diagnosis.explanations[0].explains);
    CHECK(diagnosis.explanations[0].name() == mistake.name);
  }
}

}  // namespace
}  // namespace goldenrule::verdict
