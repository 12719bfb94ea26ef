// SPDX-License-Identifier: Apache-2.0
#include "reference/calls/kernel.hpp"

#include <cmath>

#include "fixtures/call/operation.hpp"
#include "reference/calls/unwritten.hpp"

namespace goldenrule::calls {
namespace {

// What an integer buffer holds where a kernel does not write, as NaN stands for that in others.
constexpr double kUnwrittenInteger = -0x1p31;

}  // namespace

call::DType stored_type(const call::Record& record, const contract::Contract& contract,
                        const std::string& output) {
  const call::TensorRow& row = *call::find_row(record, call::Group::kOutput, output);
  if (row.storage != call::Storage::kFloat) return call::DType::kI64;
  if (!row.stored_as.empty()) {
    const call::Tensor* like = record.find_input(std::string(row.stored_as));
    return like == nullptr ? call::DType::kF32 : like->dtype();
  }
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
    std::vector<double> values = tensor.to_doubles();
    fill_unwritten(values);
    const call::DType type = stored_type(record, contract, name);
    if (!call::info(type).is_float) {
      for (double& x : values) x = std::isfinite(x) ? x : kUnwrittenInteger;
    }
    result.emplace(name, call::Tensor(type, tensor.shape(), values));
  }
  return result;
}

}  // namespace goldenrule::calls
