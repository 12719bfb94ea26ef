// SPDX-License-Identifier: Apache-2.0
#include "reference/mistakes/kernels.hpp"

#include "reference/mistakes/outputs.hpp"
#include "reference/oracle/emulate.hpp"
#include "reference/oracle/evaluate.hpp"

namespace goldenrule::mistakes {

call::TensorMap exact_kernel(const call::Record& record) {
  oracle::Evaluation evaluation =
      oracle::evaluate(record, scalar::Precision::kDouble,
                       {.certify = false, .contract = nullptr, .intermediate_states = true});
  call::TensorMap outputs;
  for (auto& [name, expected] : evaluation.outputs) {
    for (std::size_t i = 0; i < expected.undefined.size(); ++i) {
      if (expected.undefined[i]) expected.golden[i] = kUnwritten;
    }
    outputs.emplace(name, call::Tensor(call::DType::kF64, expected.shape, expected.golden));
  }
  return outputs;
}

Kernel emulated_kernel(const bounds::Contract& contract, std::uint64_t seed) {
  return [&contract, seed](const call::Record& record) {
    return oracle::emulate_unstored(record, contract, seed);
  };
}

call::TensorMap stored(const call::Record& record, const bounds::Contract& contract,
                       const call::TensorMap& outputs) {
  const call::Tensor* initial = record.find_input("initial_state");
  const call::DType state =
      contract.state_dtype.value_or(initial == nullptr ? call::DType::kF32 : initial->dtype());
  call::TensorMap result;
  for (const auto& [name, tensor] : outputs) {
    const call::DType type = name == "o" ? record.inputs.at("v").dtype() : state;
    result.emplace(name, call::Tensor(type, tensor.shape(), tensor.to_doubles()));
  }
  return result;
}

}  // namespace goldenrule::mistakes
