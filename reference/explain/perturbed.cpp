// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/perturbed.hpp"

#include <vector>

#include "fixtures/random/philox.hpp"

namespace goldenrule::explain {

double first_rounding(const contract::Contract& contract) {
  const contract::Rounding key = contract.at(contract::Activation::kKey);
  return key ? contract::unit_of(key) : contract.unit_roundoff();
}

call::Record perturbed(const call::Record& record, std::initializer_list<const char*> inputs,
                       double u, std::uint64_t seed) {
  call::Record changed = record;
  for (const char* name : inputs) {
    const auto found = changed.inputs.find(name);
    if (found == changed.inputs.end()) continue;
    call::Tensor& t = found->second;
    const random::Stream stream(seed, name);
    std::vector<double> x = t.to_doubles();
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] *= 1.0 + u * stream.uniform(static_cast<std::int64_t>(i), -1.0, 1.0);
    }
    t = call::Tensor(call::DType::kF64, t.shape(), x);
  }
  return changed;
}

}  // namespace goldenrule::explain
