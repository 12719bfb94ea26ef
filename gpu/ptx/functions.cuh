// SPDX-License-Identifier: Apache-2.0
//
// Functions that the hardware evaluates approximately, one function per instruction.
#pragma once

namespace goldenrule::gpu::ptx {

/// 2^x, relative error at most 2^-22; results below 2^-126 are 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, relative error at most 2^-23; 1 / inf is 0.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace goldenrule::gpu::ptx
