// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/functions.cuh on the CPU.
#pragma once

#include <cmath>
#include <limits>

namespace goldenrule::gpu::ptx {

inline float exp2_approximate(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.f : y;
}

inline float reciprocal_approximate(float x) {
  const float y = 1.f / x;
  return std::abs(y) < std::numeric_limits<float>::min() ? std::copysign(0.f, y) : y;
}

}  // namespace goldenrule::gpu::ptx
