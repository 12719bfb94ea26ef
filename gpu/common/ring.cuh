// SPDX-License-Identifier: Apache-2.0
//
// The place of a role in a ring of buffers that it passes in order: which buffer, and the parity
// of its round. A filler waits until a buffer is free (parity of the round before), a user until it
// is full (parity of this round).
#pragma once

#include "gpu/ptx/barrier.cuh"

namespace goldenrule::gpu {

template <int kSize>
struct Ring {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++index == kSize) {
      index = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void wait_full(uint64_t (&full)[kSize]) const {
    ptx::wait_for_phase(full[index], parity);
  }
  [[nodiscard]] __device__ __forceinline__ bool is_full(uint64_t (&full)[kSize]) const {
    return ptx::phase_is_over(full[index], parity);
  }
  __device__ __forceinline__ void wait_free(uint64_t (&free)[kSize]) const {
    ptx::wait_for_phase(free[index], parity ^ 1);
  }
  __device__ __forceinline__ void wait_free(uint64_t& free) const {
    static_assert(kSize == 1);
    ptx::wait_for_phase(free, parity ^ 1);
  }
};

}  // namespace goldenrule::gpu
