// SPDX-License-Identifier: Apache-2.0
//
// fp32 numbers as operands of the tensor cores, without an error. A significand of 24 bits is three
// of 8, so with t(x) the upper half of the bits of x,
//
//     x = t(x) + t(x - t(x)) + (x - t(x) - t(x - t(x)))
//
// where both differences are exact (they drop leading bits) and the last one has at most 8 bits
// left: three bf16 numbers whose sum is x, unless the last lies below the smallest denormal
// number, 2^-133. A product of bf16 numbers is exact in fp32, so only sums round.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/common/elements.cuh"

namespace goldenrule::gpu {

inline constexpr int kTerms = 3;

__device__ __forceinline__ uint32_t upper_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}
__device__ __forceinline__ float without_upper_half(float x) {
  return x - __uint_as_float(__float_as_uint(x) & 0xffff0000u);
}

/// Pairs of bf16, the first number in the lower half; the largest term first.
struct PairTerms {
  uint32_t term[kTerms];
};

__device__ __forceinline__ PairTerms split_pair(float low, float high) {
  PairTerms x;
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    x.term[i] = upper_halves(low, high);
    low = without_upper_half(low);
    high = without_upper_half(high);
  }
  return x;
}

/// The same with each term rounded to nearest, as exact: what a rounding leaves has at most 16,
/// then 8 bits. The terms behind the first are smaller, |x_1| <= 2^-8 |x| and |x_2| <= 2^-17 |x|
/// for 2^-7 and 2^-15, and of either sign; and it takes more instructions. Numbers from 2^128 -
/// 2^119 on become infinite.
__device__ __forceinline__ PairTerms split_pair_to_nearest(float low, float high) {
  PairTerms x;
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(low, high);
    x.term[i] = *reinterpret_cast<const uint32_t*>(&rounded);
    low -= bf16_low(x.term[i]);
    high -= bf16_high(x.term[i]);
  }
  return x;
}

}  // namespace goldenrule::gpu
