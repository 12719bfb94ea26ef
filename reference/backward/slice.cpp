// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/slice.hpp"

#include <array>
#include <string_view>

#include "fixtures/call/operation.hpp"
#include "reference/backward/budget/grant.hpp"
#include "reference/backward/budget/stage_grant.hpp"
#include "reference/backward/emulation/emulate.hpp"
#include "reference/backward/memory.hpp"
#include "reference/backward/mistakes/mistake.hpp"
#include "reference/backward/rule/evaluate.hpp"
#include "reference/backward/rule/stages.hpp"
#include "reference/contract/family.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::backward {
namespace {

using scalar::Precision;

void admit_grant(const call::Record& record, const contract::Contract& contract) {
  verdict::admit_work(Precision::kDouble, [&] { return grant_seconds(record, contract); });
}

void grant_call(const call::Record& record, const contract::Contract& contract,
                verdict::GrantDetail detail, verdict::Expectations& expected) {
  admit_grant(record, contract);
  grant(record, contract, detail, expected);
}

// What the kernels of the operation do with inputs of this type; a claim is followed where it is
// tighter.
const contract::Contract& implied_contract(const call::Record& record) {
  const call::Tensor* q = record.find_input("q");
  const bool is_short = q != nullptr && call::info(q->dtype()).bytes < sizeof(float);
  if (!is_short) return contract::find_contract("adjoint_f32");
  const bool per_channel = call::operation(record.op).gate_per_channel;
  return contract::find_contract(per_channel ? "adjoint64_fp32_pairs" : "adjoint64_16bit_pairs");
}

const contract::Contract& default_contract(const call::Record& record) {
  return contract::claimed_or_implied(record.contract, implied_contract(record),
                                      call::Family::kBackward);
}

verdict::Expectations evaluate_call(const call::Record& record, Precision precision,
                                    const verdict::EvaluationOptions& options) {
  return evaluate(record, precision, options);
}

void grant_call_stages(const call::Record& record, const contract::Contract& contract,
                       const std::map<std::string, call::DType>& stored,
                       verdict::ExpectedStages& stages) {
  admit_grant(record, contract);
  grant_stages(record, contract, stored, stages);
}

void grant_call_by_heads(const call::Record& record, const contract::Contract& contract,
                         const std::map<std::string, call::DType>& stored, Precision precision,
                         verdict::Expectations* outputs,
                         const std::function<void(verdict::StageHeads&& heads)>& take) {
  admit_grant(record, contract);
  grant_by_heads(record, contract, stored, precision, outputs, take);
}

constexpr std::array<std::string_view, 3> kTellingSuites{"backward_smoke", "backward_boundary",
                                                         "backward_stress"};

}  // namespace

const verdict::Slice& slice() {
  static const verdict::StageSlice stages{.table = stage_table,
                                          .evaluate = evaluate_stages,
                                          .grant = grant_call_stages,
                                          .in_form = stage_in_form,
                                          .by_heads = grant_call_by_heads};
  static const verdict::Slice slice{.evaluate = evaluate_call,
                                    .grant = grant_call,
                                    .grant_seconds = grant_seconds,
                                    .settle = nullptr,
                                    .confirm = confirm,
                                    .emulate = emulate,
                                    .mistakes = mistakes,
                                    .generated = nullptr,
                                    .capture_mistakes = nullptr,
                                    .find = nullptr,
                                    .likely_cause = nullptr,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = &stages,
                                    .telling_suites = kTellingSuites};
  return slice;
}

}  // namespace goldenrule::backward
