// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/golden.hpp"

#include <cmath>
#include <limits>

#include "reference/oracle/evaluate.hpp"
#include "reference/oracle/stages.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::tools {
namespace {

// Of a kernel whose contract leaves it open.
call::DType state_type(const call::Record& record) {
  const call::Tensor* initial = record.find_input("initial_state");
  return initial == nullptr ? call::DType::kF32 : initial->dtype();
}

}  // namespace

std::string generator_name() { return std::string("goldenrule ") + GOLDENRULE_VERSION; }

scalar::Precision golden_precision(const cases::Case& c) {
  return cases::step_count(c) <= kMultiSteps ? scalar::Precision::kMulti : scalar::Precision::kQuad;
}

void compute_golden(schema::Fixture& fixture, scalar::Precision precision) {
  oracle::Evaluation evaluation =
      oracle::evaluate(fixture.record, precision,
                       {.certify = true, .contract = nullptr, .intermediate_states = true});
  fixture.precision_bits = oracle::bits_of(precision);
  fixture.golden.clear();
  for (auto& [name, expected] : evaluation.outputs) {
    for (std::size_t i = 0; i < expected.undefined.size(); ++i) {
      if (expected.undefined[i]) {
        expected.golden[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    fixture.golden[name] = {
        .value = call::Tensor(call::DType::kF64, expected.shape, expected.golden),
        .radius = expected.max_radius()};
  }
}

std::int64_t stored_stages(const schema::Fixture& fixture) {
  const auto a = fixture.stages.find("A");
  return a == fixture.stages.end() || a->second.shape().empty() ? 0 : a->second.shape().back();
}

std::optional<scalar::Precision> stored_precision(const schema::Fixture& fixture) {
  using scalar::Precision;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (oracle::bits_of(p) == fixture.precision_bits) return p;
  }
  return std::nullopt;
}

call::TensorMap compute_budget(const schema::Fixture& fixture, const bounds::Contract& contract) {
  const call::Record& record = fixture.record;
  oracle::Evaluation evaluation =
      oracle::evaluate(record, scalar::Precision::kDouble,
                       {.certify = false,
                        .contract = &contract,
                        .intermediate_states = fixture.golden.contains("intermediate_states")});
  call::TensorMap budgets;
  for (const auto& [name, golden] : fixture.golden) {
    oracle::Expected& expected = evaluation.outputs.at(name);
    expected.golden = golden.value.to_doubles();
    const call::DType type = name == "o" ? record.inputs.at("v").dtype() : state_type(record);
    const verdict::Budget budget(name, type, expected, contract);
    if (!budget.given()) continue;
    call::Tensor& tensor =
        budgets.emplace(name, call::Tensor(call::DType::kF32, expected.shape)).first->second;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const float granted = call::f32_not_below(budget(static_cast<std::size_t>(i)));
      tensor.set(i, static_cast<double>(granted));
    }
  }
  return budgets;
}

schema::Fixture make_fixture(const cases::Case& c, scalar::Precision precision,
                             const Extras& extras) {
  schema::Fixture fixture;
  fixture.record = cases::make_record(c);
  fixture.generator = generator_name();
  fixture.family = c.family;
  fixture.seed = static_cast<std::int64_t>(c.seed);
  compute_golden(fixture, precision);
  if (extras.stages > 0) fixture.stages = oracle::chunk_stages(fixture.record, extras.stages);
  for (const bounds::Contract& contract : extras.contracts) {
    fixture.budgets[contract.name] = compute_budget(fixture, contract);
  }
  return fixture;
}

}  // namespace goldenrule::tools
