// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fixtures/call/error.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/verdict/verdict.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"

namespace goldenrule::tools {
namespace {

// NaN is itself here: a NaN in the same place is the same input.
bool same_values(const call::Tensor& a, const call::Tensor& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.shape() == b.shape() && std::ranges::equal(a.to_doubles(), b.to_doubles(), same);
}

// The candidate must have been given the golden file's inputs, or the comparison means nothing. It
// need not repeat them; what it repeats must be the same.
void check_same_inputs(const schema::Fixture& golden, const schema::Fixture& candidate,
                       const DiffOptions& options) {
  for (const auto& [name, tensor] : candidate.record.inputs) {
    const call::Tensor* given = golden.record.find_input(name);
    if (given == nullptr || !same_values(*given, tensor)) {
      throw Error(ErrorKind::kValue, options.candidate, "/inputs/" + name,
                  "the values in " + options.golden, "other values");
    }
  }
  if (!(golden.record.convention == candidate.record.convention)) {
    throw Error(ErrorKind::kValue, options.candidate, "/convention",
                "the conventions of " + options.golden, "other conventions");
  }
}

}  // namespace

int diff(const DiffOptions& options) {
  schema::Fixture golden =
      schema::read_fixture(options.golden, {.budgets = false, .stages = false});
  schema::Fixture candidate =
      schema::read_fixture(options.candidate, {.golden = false, .budgets = false, .stages = false});
  if (golden.golden.empty()) {
    throw Error(ErrorKind::kSchema, options.golden, "/golden", "golden values", "none");
  }
  check_same_inputs(golden, candidate, options);

  FileReport result;
  result.file = options.candidate;
  golden.record.outputs = std::move(candidate.record.outputs);
  golden.record.contract = candidate.record.contract;
  const bounds::Contract contract =
      choose_contract(options.contract, golden.record, result.contract_origin);
  std::map<std::string, verdict::StoredGolden> stored;
  for (const auto& [name, tensor] : golden.golden) {
    stored[name] = {.values = tensor.value.to_doubles(), .radius = tensor.radius};
  }
  verdict::Judgement judgement =
      verdict::judgement(golden.record, contract, stored, golden.precision_bits);
  if (options.explain) result.diagnosis = explain_failure(golden.record, contract, judgement);
  result.report = std::move(judgement.report);
  result.record = std::move(golden.record);
  drop_tensors(result.record);
  fmt::print("{}\n", text_report(result));
  return finish({result}, options.json, options.junit);
}

}  // namespace goldenrule::tools
