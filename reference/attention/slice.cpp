// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/slice.hpp"

#include <array>
#include <string_view>

#include "reference/attention/budget/grant.hpp"
#include "reference/attention/emulation/emulate.hpp"
#include "reference/attention/memory.hpp"
#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/visible/find.hpp"
#include "reference/attention/work.hpp"
#include "reference/contract/family.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::attention {
namespace {

verdict::Expectations evaluate_call(const call::Record& record, scalar::Precision precision,
                                    const verdict::EvaluationOptions& options) {
  const Plan plan = make_plan(record);
  verdict::admit_work(precision,
                      [&] { return core_seconds(extent_of(plan), plan.dims, precision); });
  return evaluate(record, plan, precision, options.certify);
}

// What nearly every kernel does; a claim is followed where it is tighter.
const contract::Contract& default_contract(const call::Record& record) {
  return contract::claimed_or_implied(record.contract, contract::find_contract("flash_bf16"),
                                      call::Family::kAttention);
}

constexpr std::array<std::string_view, 1> kTellingSuites{"attention_boundary"};

}  // namespace

const verdict::Slice& slice() {
  static const verdict::Slice slice{.evaluate = evaluate_call,
                                    .grant = grant,
                                    .grant_seconds = nullptr,
                                    .settle = nullptr,
                                    .confirm = nullptr,
                                    .emulate = emulate,
                                    .mistakes = mistakes,
                                    .generated = merge_mistakes,
                                    .capture_mistakes = nullptr,
                                    .find = find_visible_sets,
                                    .likely_cause = nullptr,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = nullptr,
                                    .telling_suites = kTellingSuites};
  return slice;
}

}  // namespace goldenrule::attention
