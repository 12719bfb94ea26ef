// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/kernels.hpp"

#include <utility>

namespace goldenrule::verdict {

call::TensorMap exact_outputs(const Slice& slice, const call::Record& record) {
  Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {.certify = false});
  call::TensorMap outputs;
  for (auto& [name, e] : expected.outputs) {
    // Of several right results this kernel returns the exact one.
    outputs.emplace(name, call::Tensor(call::DType::kF64, e.exact.shape,
                                       slice.settle != nullptr ? std::move(e.exact.golden)
                                                               : e.exact.take_output()));
  }
  return outputs;
}

calls::Kernel exact_kernel(const Slice& slice) {
  return [&slice](const call::Record& record) { return exact_outputs(slice, record); };
}

calls::Kernel emulated_kernel(const Slice& slice, const contract::Contract& contract,
                              std::uint64_t seed) {
  return [&slice, &contract, seed](const call::Record& record) {
    return slice.emulate(record, contract, seed);
  };
}

}  // namespace goldenrule::verdict
