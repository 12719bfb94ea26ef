// SPDX-License-Identifier: Apache-2.0
//
// Asking the L2 for states that a later block will read. The chain slot, state, arithmetic, store
// leaves the memory idle at its ends; with the states already on their way the chain is short.
//   - Of a block less than a wave on (`ahead`, gpu/launch/tuning.hpp), which the device starts when
//     others are done: the memory reads while this block computes. A whole wave on is too early:
//     what is asked for waits in L2 beside what is on its way to memory.
//   - Of this block, before the kernel in front of it is complete (dependent launch). The slot may
//     then still change, so it is read past L1, checked, and used for this hint only; where the
//     caller vouches for slots and states, decode takes both then (decode.cuh).
#pragma once

#include "gpu/common/prefetch.cuh"
#include "gpu/delta/recurrent/row_slots.cuh"

namespace goldenrule::gpu::recurrent {

/// The states of the block at `at` in this slot; all threads of a block take part.
template <class C>
__device__ __forceinline__ void prefetch_states(const Params& p, BlockPlace at, int64_t slot) {
  if constexpr (C::kExact) {
    prefetch_state_rows<C>(p.state, slot, at.hv, at.row0);
  }
}

/// What the tokens of a block are made of; one thread a row.
template <class C>
__device__ __forceinline__ void prefetch_tokens(const Params& p, BlockPlace at) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < 5 * p.T; i += C::kThreads) {
    const int t = i / 5;
    const int gate_bytes = (p.channel_gate ? p.K : 1) * element_size(p.gate_type);
    switch (i % 5) {
      case 0:
        prefetch_row(token_row(p.k, at.b, t, at.h), p.K * element_size(p.qk_type));
        break;
      case 1:
        prefetch_row(token_row(p.q, at.b, t, at.h), p.K * element_size(p.qk_type));
        break;
      case 2:
        if (p.gate.data != nullptr) prefetch_row(token_row(p.gate, at.b, t, at.hv), gate_bytes);
        break;
      case 3:
        prefetch_row(token_row(p.beta, at.b, t, at.hv), 1);
        break;
      default:
        prefetch_row(token_row(p.v, at.b, t, at.hv) + at.row0 * element_size(p.v_type), 1);
    }
  }
}

/// Whether this block is of the first ones, which begin while the kernel in front may still run.
__device__ __forceinline__ bool is_of_first_wave(const Params& p) {
  return static_cast<int>(blockIdx.x) < p.wave;
}

/// What the first blocks of a dependent launch ask for before they may read what the kernel in
/// front writes: tokens. Returns the start slot as it is then; kNoSlot also in other blocks, and
/// where it is two more reads away.
template <class C>
__device__ __forceinline__ int64_t early_start_slot(const Params& p, BlockPlace at) {
  if (p.dependent == 0 || !is_of_first_wave(p)) return kNoSlot;
  prefetch_tokens<C>(p, at);
  if (p.state_indices != nullptr) {
    const int64_t from = int64_t{at.b} * p.start_step;
    return checked_slot(p, ptx::load_relaxed_index(p.state_indices, p.wide_start, from));
  }
  return p.ssm_state_indices != nullptr ? kNoSlot : at.b;
}

/// Tokens and states of the first blocks.
template <class C>
__device__ __forceinline__ void prefetch_first_wave(const Params& p, BlockPlace at) {
  const int64_t slot = early_start_slot<C>(p, at);
  if (slot != kNoSlot) prefetch_states<C>(p, at, slot);
}

/// What a block asks for in place of the one that follows it on its multiprocessor: the slot while
/// its own loads are on their way, the states when the slot has come.
template <class C>
class NextWave {
 public:
  __device__ __forceinline__ void request(const Params& p) {
    // Unsigned: the last of 2^31 blocks and those ahead of it are beyond an int.
    const unsigned tile = blockIdx.x + static_cast<unsigned>(p.ahead);
    asks_ = C::kExact && p.ahead != 0 && tile < gridDim.x;
    if (!asks_) return;
    at_ = place_of<C>(p, static_cast<int>(tile));
    slot_bits_ = request_start_slot(p, at_.b);
  }
  __device__ __forceinline__ void prefetch(const Params& p) const {
    if (!asks_) return;
    const int64_t slot = start_slot(p, at_.b, slot_bits_);
    if (slot != kNoSlot) prefetch_states<C>(p, at_, slot);
  }

 private:
  bool asks_ = false;
  BlockPlace at_{};
  uint2 slot_bits_{};
};

}  // namespace goldenrule::gpu::recurrent
