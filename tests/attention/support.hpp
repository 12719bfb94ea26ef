// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::test {

inline const contract::Contract& flash_contract() { return contract::find_contract("flash_bf16"); }

inline verdict::CaseReport judged(const call::Record& record, const contract::Contract& contract) {
  return verdict::judge_record(attention::slice(), record, {.contract = contract});
}

/// As an emulated kernel stores them.
inline call::TensorMap outputs_of(const call::Record& record, const contract::Contract& contract,
                                  std::uint64_t seed) {
  return calls::stored(record, contract, attention::slice().emulate(record, contract, seed));
}

/// The exact results, in the type of q.
inline call::TensorMap exact_outputs(const call::Record& record) {
  const call::DType type = record.inputs.at("q").dtype();
  const verdict::Expectations expected =
      attention::evaluate(record, scalar::Precision::kQuad, false);
  call::TensorMap outputs;
  for (const auto& [name, e] : expected.outputs) {
    outputs[name] = call::Tensor(type, e.exact.shape, e.exact.golden);
  }
  return outputs;
}

}  // namespace goldenrule::test
