// SPDX-License-Identifier: Apache-2.0
#include "reference/calls/kernel.hpp"

namespace goldenrule::calls {

call::DType stored_type(const call::Record& record, const contract::Contract& contract,
                        const std::string& output) {
  if (output == "o") return record.inputs.at(call::type_of_o(record.op)).dtype();
  const call::Tensor* before = record.find_input("initial_" + output);  // a buffer, a ring
  if (before != nullptr) return before->dtype();
  const call::Tensor* initial = record.find_input("initial_state");
  return contract.state_dtype.value_or(initial == nullptr ? call::DType::kF32 : initial->dtype());
}

call::TensorMap stored(const call::Record& record, const contract::Contract& contract,
                       const call::TensorMap& outputs) {
  call::TensorMap result;
  for (const auto& [name, tensor] : outputs) {
    result.emplace(name, call::Tensor(stored_type(record, contract, name), tensor.shape(),
                                      tensor.to_doubles()));
  }
  return result;
}

}  // namespace goldenrule::calls
