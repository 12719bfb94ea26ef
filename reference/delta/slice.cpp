// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/slice.hpp"

#include <array>
#include <string_view>

#include "fixtures/call/plan.hpp"
#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/budget/stage_grant.hpp"
#include "reference/delta/capture_mistakes.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/long_keys.hpp"
#include "reference/delta/mistakes/generated.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/norm_search.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/memory.hpp"
#include "reference/delta/oracle/stages.hpp"
#include "reference/delta/oracle/work.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::delta {
namespace {

using scalar::Precision;

void admit_evaluation(const call::Record& record, std::int64_t chunk, Precision tier) {
  verdict::admit_work(tier, [&] {
    return evaluation_seconds(record, call::make_plan(record, false), chunk, tier);
  });
}

verdict::Expectations evaluate_call(const call::Record& record, Precision precision,
                                    const verdict::EvaluationOptions& options) {
  admit_evaluation(record, 0, precision);
  return evaluate(record, precision, options);
}

double grant_seconds(const call::Record& record, const contract::Contract& contract) {
  if (!contract.is_of(call::Family::kDelta) || !is_emulated(record, contract)) return 0.0;
  const call::Plan plan = call::make_plan(record, false);
  const Runs runs = runs_for(record, plan, contract);
  return run_seconds(steps_of_runs(record, plan, contract) * runs.all());
}

void admit_grant(const call::Record& record, const contract::Contract& contract) {
  verdict::admit_work(Precision::kDouble, [&] { return grant_seconds(record, contract); });
}

void grant_call(const call::Record& record, const contract::Contract& contract,
                verdict::GrantDetail detail, verdict::Expectations& expected) {
  admit_grant(record, contract);
  grant(record, contract, detail, expected);
}

verdict::ExpectedStages evaluate_call_stages(const call::Record& record, std::int64_t C,
                                             const std::vector<std::string>& names,
                                             Precision precision) {
  admit_evaluation(record, C, precision);
  return evaluate_stages(record, C, names, precision);
}

void grant_call_stages(const call::Record& record, const contract::Contract& contract,
                       const std::map<std::string, call::DType>& stored,
                       verdict::ExpectedStages& stages) {
  admit_grant(record, contract);
  grant_stages(record, contract, stored, stages);
}

constexpr std::array<std::string_view, 3> kTellingSuites{"boundary", "stress", "mtp"};

}  // namespace

const verdict::Slice& slice() {
  static const verdict::StageSlice stages{.table = stage_table,
                                          .evaluate = evaluate_call_stages,
                                          .grant = grant_call_stages,
                                          .in_form = stage_in_form};
  static const verdict::Slice slice{.evaluate = evaluate_call,
                                    .grant = grant_call,
                                    .grant_seconds = grant_seconds,
                                    .settle = nullptr,
                                    .confirm = confirm,
                                    .emulate = emulate_unstored,
                                    .mistakes = mistakes,
                                    .generated = generated_mistakes,
                                    .capture_mistakes = capture_mistakes,
                                    .find = find_norm,
                                    .likely_cause = long_keys,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = &stages,
                                    .telling_suites = kTellingSuites};
  return slice;
}

}  // namespace goldenrule::delta
