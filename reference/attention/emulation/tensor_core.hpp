// SPDX-License-Identifier: Apache-2.0
//
// A sum as a tensor core of NVIDIA's adds it: terms and accumulator are aligned to the largest of
// them and cut off two binary places below fp32's last, and the sum is cut off to fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/attention/budget/rescales.hpp"

namespace goldenrule::attention {

/// What leaves fp32 is infinite, as a tensor core has it.
[[nodiscard]] inline float truncated(double x) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  if (std::fabs(x) >= 0x1p128) return x < 0.0 ? -kInfinite : kInfinite;
  auto y = static_cast<float>(x);
  if (std::fabs(static_cast<double>(y)) > std::fabs(x)) y = std::nextafterf(y, 0.0F);
  return y;
}

/// acc + sum of up to kTensorCoreStep terms, as a tensor core adds.
[[nodiscard]] inline float tensor_core_sum(float acc, const double* terms, std::size_t count) {
  double largest = std::fabs(static_cast<double>(acc));
  double plain = static_cast<double>(acc);
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(terms[i]));
    plain += terms[i];
  }
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  if (largest == 0.0) return acc;
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 26);
  double sum = std::trunc(static_cast<double>(acc) / unit) * unit;
  for (std::size_t i = 0; i < count; ++i) sum += std::trunc(terms[i] / unit) * unit;
  return truncated(sum);
}

}  // namespace goldenrule::attention
