// SPDX-License-Identifier: Apache-2.0
//
// Slots of a pool of states. Their indices are device data that the host cannot check, so a slot
// outside the pool is treated like the pad slot and no address is ever formed from it.
//
// P is the parameters of any kernel group that has a pool and names it as goldenrule_gpu.h does.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu {

inline constexpr int64_t kNoSlot = -1;

template <class P>
concept has_slots = requires(const P& p) {
  p.slots;
  p.pad_slot;
  p.state_indices;
  p.wide_start;
  p.start_step;
};

template <has_slots P>
__device__ __forceinline__ int64_t checked_slot(const P& p, int64_t slot) {
  return slot == p.pad_slot || slot < 0 || slot >= p.slots ? kNoSlot : slot;
}

/// The slot that row b starts from, in two halves: the load of its index is the first of a chain,
/// so it is requested before anything else and waited for as late as possible.
template <has_slots P>
__device__ __forceinline__ uint2 request_start_slot(const P& p, int b) {
  if (p.state_indices != nullptr) {
    return load_index_bits(p.state_indices, p.wide_start, int64_t{b} * p.start_step);
  }
  return make_uint2(0, 0);
}

/// The same request as an asynchronous copy to shared memory, one group, for a kernel that waits
/// for the slot while loads of its token are under way.
template <has_slots P>
__device__ __forceinline__ void copy_start_slot(const P& p, int b, uint2& to) {
  if (p.state_indices != nullptr) {
    const int64_t at = int64_t{b} * p.start_step;
    if (p.wide_start) {
      ptx::copy_async_8(&to, static_cast<const int64_t*>(p.state_indices) + at);
    } else {
      ptx::copy_async_4(&to, static_cast<const int32_t*>(p.state_indices) + at);
    }
  }
  ptx::commit_copies();
}

/// The states of head `hv` in this block of the pool.
template <class State>
__device__ __forceinline__ State* state_head(const StateView& view, int64_t block, int hv) {
  return static_cast<State*>(view.data) + block * view.block + static_cast<int64_t>(hv) * view.head;
}

}  // namespace goldenrule::gpu
