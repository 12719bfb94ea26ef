// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/kernels.hpp"

#include "reference/calls/outputs.hpp"

namespace goldenrule::verdict {

call::TensorMap exact_outputs(const Slice& slice, const call::Record& record) {
  Expectations expected = slice.evaluate(record, scalar::Precision::kDouble, {.certify = false});
  call::TensorMap outputs;
  for (auto& [name, e] : expected.outputs) {
    Exact& exact = e.exact;
    for (std::size_t i = 0; i < exact.undefined.size(); ++i) {
      if (exact.undefined[i]) exact.golden[i] = calls::kUnwritten;
    }
    outputs.emplace(name, call::Tensor(call::DType::kF64, exact.shape, exact.golden));
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
