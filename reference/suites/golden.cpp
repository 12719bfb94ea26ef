// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/golden.hpp"

#include <cmath>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/suites/slices.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::suites {
std::string generator_name() { return std::string("goldenrule ") + GOLDENRULE_VERSION; }

scalar::Precision golden_precision(const cases::Case& c) {
  return cases::step_count(c) <= kMultiSteps ? scalar::Precision::kMulti : scalar::Precision::kQuad;
}

void compute_golden(schema::Fixture& fixture, scalar::Precision precision) {
  verdict::Expectations evaluation =
      slice_of(fixture.record.op).evaluate(fixture.record, precision, {});
  fixture.precision_bits = scalar::bits_of(precision);
  fixture.golden.clear();
  for (auto& [name, e] : evaluation.outputs) {
    std::vector<double> values = e.exact.take_output();
    calls::fill_unwritten(values);
    fixture.golden[name] = {.value = call::Tensor(call::DType::kF64, e.exact.shape, values),
                            .radius = e.exact.max_radius()};
  }
}

std::int64_t stored_stages(const schema::Fixture& fixture) {
  const auto T = fixture.stages.find("T");
  return T == fixture.stages.end() || T->second.shape().empty() ? 0 : T->second.shape().back();
}

std::optional<scalar::Precision> stored_precision(const schema::Fixture& fixture) {
  using scalar::Precision;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (scalar::bits_of(p) == fixture.precision_bits) return p;
  }
  return std::nullopt;
}

std::map<std::string, call::TensorMap> compute_budgets(
    const schema::Fixture& fixture, const std::vector<contract::Contract>& contracts) {
  if (contracts.empty()) return {};
  const call::Record& record = fixture.record;
  const verdict::Slice& slice = slice_of(record.op);
  verdict::Expectations expected =
      slice.evaluate(record, scalar::Precision::kDouble,
                     {.certify = false, .kept_states = call::has_kept_states(fixture.golden)});
  std::map<std::string, call::TensorMap> budgets;
  for (const contract::Contract& contract : contracts) {
    slice.grant(record, contract, verdict::GrantDetail::kSpread, expected);
    call::TensorMap& of_contract = budgets[contract.name];
    for (const auto& [name, golden] : fixture.golden) {
      verdict::Expected& e = expected.outputs.at(name);
      const call::DType type = calls::stored_type(record, contract::Contract(), name);
      const verdict::Budget budget(name, type, e, contract);
      if (!budget.given()) continue;
      call::Tensor& tensor =
          of_contract.emplace(name, call::Tensor(call::DType::kF32, e.exact.shape)).first->second;
      // Granted is what belongs to the double evaluation, as in a verdict; half an ulp lies where
      // the stored golden value is.
      std::vector<double> values = golden.value.to_doubles();
      std::swap(e.exact.golden, values);
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const float granted = call::f32_not_below(budget(static_cast<std::size_t>(i)));
        tensor.set(i, static_cast<double>(granted));
      }
      std::swap(e.exact.golden, values);
    }
  }
  return budgets;
}

schema::Fixture make_fixture(const cases::Case& c, scalar::Precision precision,
                             const Extras& extras) {
  schema::Fixture fixture;
  fixture.record = cases::make_record(c);
  fixture.generator = generator_name();
  fixture.pattern = c.pattern;
  fixture.seed = static_cast<std::int64_t>(c.seed);
  compute_golden(fixture, precision);
  if (extras.stages > 0 && slice_of(c.op).stages == nullptr) {
    throw Error(ErrorKind::kArgument, "stages", "a case of an operation that has stages",
                "'" + cases::canonical(c) + "'");
  }
  if (extras.stages > 0) {
    fixture.stages = verdict::exact_stages(*slice_of(c.op).stages, fixture.record, extras.stages);
  }
  fixture.budgets = compute_budgets(fixture, extras.contracts);
  return fixture;
}

}  // namespace goldenrule::suites
