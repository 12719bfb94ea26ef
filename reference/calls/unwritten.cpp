// SPDX-License-Identifier: Apache-2.0
#include "reference/calls/unwritten.hpp"

#include <limits>
#include <vector>

namespace goldenrule::calls {

void fill_unwritten(std::span<double> values) {
  for (double& x : values) {
    if (is_unwritten(x)) x = std::numeric_limits<double>::quiet_NaN();
  }
}

call::Tensor unwritten_tensor(const call::Shape& shape) {
  const auto size = static_cast<std::size_t>(call::element_count(shape));
  return {call::DType::kF64, shape, std::vector<double>(size, kUnwritten)};
}

call::Tensor widened(const call::Tensor& tensor) {
  return {call::DType::kF64, tensor.shape(), tensor.to_doubles()};
}

}  // namespace goldenrule::calls
