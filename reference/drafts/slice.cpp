// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/slice.hpp"

#include <array>
#include <string_view>

#include "reference/drafts/emulation/emulate.hpp"
#include "reference/drafts/memory.hpp"
#include "reference/drafts/mistakes/mistake.hpp"
#include "reference/drafts/rule/evaluate.hpp"
#include "reference/drafts/rule/settle.hpp"
#include "reference/drafts/search/find.hpp"

namespace goldenrule::drafts {
namespace {

// Every tier is exact.
verdict::Expectations evaluate_call(const call::Record& record, scalar::Precision precision,
                                    const verdict::EvaluationOptions&) {
  verdict::Expectations expected = evaluate(record);
  expected.precision = precision;
  return expected;
}

// Integers: the right number or another.
void grant(const call::Record&, const contract::Contract& contract, verdict::GrantDetail,
           verdict::Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    e.grant = {};
    e.grant.given = contract.is_ideal();
  }
}

// The only one that there is; a claim of another family is refused by judgement.
const contract::Contract& default_contract(const call::Record& record) {
  return contract::find_contract(record.contract.empty() ? "ideal" : record.contract);
}

call::TensorMap emulate_call(const call::Record& record, const contract::Contract&,
                             std::uint64_t seed) {
  return emulate(record, seed);
}

constexpr std::array<std::string_view, 1> kTellingSuites{"draft_acceptance"};

}  // namespace

const verdict::Slice& slice() {
  static const verdict::Slice slice{.evaluate = evaluate_call,
                                    .grant = grant,
                                    .grant_seconds = nullptr,
                                    .settle = settle,
                                    .confirm = nullptr,
                                    .emulate = emulate_call,
                                    .mistakes = mistakes,
                                    .generated = nullptr,
                                    .capture_mistakes = nullptr,
                                    .find = find_decisions,
                                    .likely_cause = nullptr,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = nullptr,
                                    .telling_suites = kTellingSuites};
  return slice;
}

}  // namespace goldenrule::drafts
