// SPDX-License-Identifier: Apache-2.0
//
// With what the kernels begin in which a block carries value rows of a head along a sequence.
#pragma once

#include "gpu/delta/prefill/padding.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::prefill {

/// A block's value rows of a head, and the sequence along which it carries them.
struct BlockSequence {
  BlockPlace at;  // b = 0: tokens are packed
  int n;
};

/// Returns when what the kernel in front writes may be read.
template <class C>
__device__ __forceinline__ BlockSequence begin_sequence(const Params& p) {
  BlockPlace at = recurrent::place_of<C>(p, static_cast<int>(blockIdx.x));
  const int n = at.b;
  at.b = 0;
  ptx::wait_for_dependencies();
  return {.at = at, .n = n};
}

}  // namespace goldenrule::gpu::prefill
