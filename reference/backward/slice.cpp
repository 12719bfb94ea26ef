// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/slice.hpp"

#include "fixtures/call/operation.hpp"
#include "reference/backward/memory.hpp"
#include "reference/backward/mistakes/mistake.hpp"
#include "reference/backward/rule/evaluate.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::backward {
namespace {

using scalar::Precision;

void grant_call(const call::Record& record, const contract::Contract& contract,
                verdict::GrantDetail detail, verdict::Expectations& expected) {
  static_cast<void>(record); static_cast<void>(detail);
  for (auto& [name, e] : expected.outputs) { e.grant = {}; e.grant.given = contract.is_ideal(); }
}
const contract::Contract& default_contract(const call::Record&) { return contract::find_contract("ideal"); }
call::TensorMap emulate(const call::Record& record, const contract::Contract&, std::uint64_t) {
  auto e = evaluate(record, Precision::kDouble, {.certify=false});
  call::TensorMap m; for (auto& [n, x] : e.outputs) m[n] = call::Tensor(call::DType::kF64, x.exact.shape, x.exact.golden); return m;
}
verdict::Expectations evaluate_call(const call::Record& record, Precision precision,
                                    const verdict::EvaluationOptions& options) {
  return evaluate(record, precision, options);
}

}  // namespace

const verdict::Slice& slice() {
  static const verdict::Slice slice{.evaluate = evaluate_call,
                                    .grant = grant_call,
                                    .grant_seconds = nullptr,
                                    .settle = nullptr,
                                    .emulate = emulate,
                                    .mistakes = mistakes,
                                    .capture_mistakes = nullptr,
                                    .likely_cause = nullptr,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = nullptr};
  return slice;
}

}  // namespace goldenrule::backward
