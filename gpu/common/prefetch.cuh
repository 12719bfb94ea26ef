// SPDX-License-Identifier: Apache-2.0
//
// Asking the L2 for what will be read soon; no register waits for it.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu {

inline constexpr int kLineBytes = 128;

/// The lines of one row of a token tensor.
__device__ __forceinline__ void prefetch_row(const char* row, int bytes) {
#pragma unroll 1
  for (int i = 0; i < bytes; i += kLineBytes) ptx::prefetch_l2(row + i);
}

/// The value rows of a block, from `row0` on, of head `hv` of the states in this slot; all threads
/// of the block take part. C: State, kVK, kPaddedK, kBlockRows and kThreads of the kernel.
template <class C>
__device__ __forceinline__ void prefetch_state_rows(const StateView& states, int64_t slot, int hv,
                                                    int row0) {
  using State = typename C::State;
  const State* head = state_head<State>(states, slot, hv);
  if constexpr (C::kVK) {
    constexpr int kStep = kLineBytes / static_cast<int>(sizeof(State));
    const State* first = head + static_cast<int64_t>(row0) * C::kPaddedK;
#pragma unroll
    for (int i = 0; i < C::kBlockRows * C::kPaddedK; i += C::kThreads * kStep) {
      const int element = i + static_cast<int>(threadIdx.x) * kStep;
      if (element < C::kBlockRows * C::kPaddedK) ptx::prefetch_l2(first + element);
    }
  } else {
    constexpr int kBytes = C::kBlockRows * static_cast<int>(sizeof(State));
    constexpr int kLines = kBytes > kLineBytes ? kBytes / kLineBytes : 1;  // of a key channel
    const State* first = head + row0;
#pragma unroll
    for (int i = 0; i < C::kPaddedK * kLines; i += C::kThreads) {
      const int line = i + static_cast<int>(threadIdx.x);
      const int within = line % kLines * (kLineBytes / static_cast<int>(sizeof(State)));
      if (line < C::kPaddedK * kLines) {
        ptx::prefetch_l2(first + static_cast<int64_t>(line / kLines) * states.outer + within);
      }
    }
  }
}

}  // namespace goldenrule::gpu
