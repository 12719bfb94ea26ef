// SPDX-License-Identifier: Apache-2.0
//
// What an element is that no kernel has written: a NaN, which no comparison takes for a number.
#pragma once

#include <limits>

#include "fixtures/call/tensor.hpp"

namespace goldenrule::calls {

inline constexpr double kUnwritten = std::numeric_limits<double>::quiet_NaN();

/// An f64 tensor with every element NaN.
[[nodiscard]] call::Tensor unwritten_tensor(const call::Shape& shape);

/// `tensor` in f64.
[[nodiscard]] call::Tensor widened(const call::Tensor& tensor);

}  // namespace goldenrule::calls
