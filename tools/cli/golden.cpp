// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/golden.hpp"

#include <limits>

#include "reference/oracle/evaluate.hpp"
#include "reference/oracle/stages.hpp"

namespace goldenrule::tools {

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

schema::Fixture make_fixture(const cases::Case& c, scalar::Precision precision, int stages) {
  schema::Fixture fixture;
  fixture.record = cases::make_record(c);
  fixture.generator = generator_name();
  fixture.family = c.family;
  fixture.seed = static_cast<std::int64_t>(c.seed);
  compute_golden(fixture, precision);
  if (stages > 0) fixture.stages = oracle::chunk_stages(fixture.record, stages);
  return fixture;
}

}  // namespace goldenrule::tools
