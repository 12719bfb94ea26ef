// SPDX-License-Identifier: Apache-2.0
//
// Hints to the compiler about registers.
#pragma once

namespace goldenrule::gpu::ptx {

/// x, hidden from the compiler: what it takes part in is then computed where it is needed, instead
/// of being kept in a register from far before.
template <class T>
__device__ __forceinline__ T hidden(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

// On 9.0 the kernels are tuned, and these three do nothing. Elsewhere ptxas needs more registers,
// and what it finds none for goes to local memory.

/// x, hidden as above.
template <class T>
__device__ __forceinline__ T hidden_off_90(T x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  return hidden(x);
#else
  return x;
#endif
}

/// x is filled up to some condition and read up to the same one. What is not filled would count as
/// there from the start of the kernel on.
template <int N>
__device__ __forceinline__ void define_off_90(float (&x)[N]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0.f;
#endif
}

/// For all lanes of a warp: what is read from memory behind this is not read ahead of it.
__device__ __forceinline__ void read_no_further_off_90() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  __syncwarp();
#endif
}

}  // namespace goldenrule::gpu::ptx
