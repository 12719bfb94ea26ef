// SPDX-License-Identifier: Apache-2.0
//
// Hints to the compiler about registers; no instruction.
#pragma once

namespace goldenrule::gpu::ptx {

/// x, hidden from the compiler: what it takes part in is then computed where it is needed, instead
/// of being kept in a register from far before.
template <class T>
__device__ __forceinline__ T hidden(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace goldenrule::gpu::ptx
