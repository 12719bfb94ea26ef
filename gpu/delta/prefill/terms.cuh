// SPDX-License-Identifier: Apache-2.0
//
// fp32 numbers as one bf16 number, or as the sum of two.
#pragma once

#include "gpu/common/elements.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Two bf16 pairs whose sum is a pair of fp32 numbers to 2^-17.
struct TwoTerms {
  uint32_t high, low;
};

/// The pair (x, y) as bf16, x in the lower half, rounded to nearest even.
__device__ __forceinline__ uint32_t bf16_pair(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ TwoTerms two_terms(float x, float y) {
  const uint32_t high = bf16_pair(x, y);
  return {high, bf16_pair(x - bf16_low(high), y - bf16_high(high))};
}

}  // namespace goldenrule::gpu::prefill
