// SPDX-License-Identifier: Apache-2.0
//
// Which blocks of state a row of the batch reads and writes: the rules of goldenrule_gpu.h in one
// place. Everything read here is device data that the host cannot check, so a slot outside the
// pool is treated like the pad slot and no address is ever formed from it.
#pragma once

#include "gpu/kernels/elements.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu {

inline constexpr int64_t kNoSlot = -1;
inline constexpr int kNever = -1;

/// Where and when the state of a row is written back, apart from the scatter form.
struct FinalWrite {
  int64_t slot;  // kNoSlot: nothing to write
  int after;     // after this many tokens; kNever if there is nothing to write
};

__device__ __forceinline__ int64_t checked_slot(const Params& p, int64_t slot) {
  return slot == p.pad_slot || slot < 0 || slot >= p.slots ? kNoSlot : slot;
}

__device__ __forceinline__ int64_t ssm_slot(const Params& p, int b, int64_t t) {
  const int64_t at = static_cast<int64_t>(b) * p.ssm_row + t * p.ssm_token;
  return checked_slot(p, load_index(p.ssm_state_indices, p.wide_ssm, at));
}

/// The slot that row b starts from, in two halves: the load of its index is the first of a chain,
/// so it is requested before anything else and waited for as late as possible.
__device__ __forceinline__ uint2 request_start_slot(const Params& p, int b) {
  if (p.state_indices != nullptr) return load_index_bits(p.state_indices, p.wide_start, b);
  return make_uint2(0, 0);
}

/// The same request as an asynchronous copy to shared memory, one group, for a kernel that waits
/// for the slot while loads of its token are under way.
__device__ __forceinline__ void copy_start_slot(const Params& p, int b, uint2& to) {
  if (p.state_indices != nullptr) {
    if (p.wide_start) {
      ptx::copy_async_8(&to, static_cast<const int64_t*>(p.state_indices) + b);
    } else {
      ptx::copy_async_4(&to, static_cast<const int32_t*>(p.state_indices) + b);
    }
  }
  ptx::commit_copies();
}

/// kNoSlot: the row is padded. Without indices the slot is b, whatever the pad slot is.
__device__ __forceinline__ int64_t start_slot(const Params& p, int b, uint2 requested) {
  if (p.state_indices != nullptr) {
    return checked_slot(p, index_from_bits(requested, p.wide_start));
  }
  if (p.ssm_state_indices != nullptr) {
    const int64_t n = load_index(p.num_accepted_tokens, p.wide_num_accepted, b);
    return n >= 1 && n <= p.T ? ssm_slot(p, b, n - 1) : kNoSlot;
  }
  return b;
}

/// start_slot of what copy_start_slot requested, the latest copies of this thread.
__device__ __forceinline__ int64_t copied_start_slot(const Params& p, int b, const uint2& copied) {
  // The wait stands behind a branch, or the compiler moves it ahead of loads that stand before it.
  uint2 bits{};
  if (p.state_indices != nullptr) {
    ptx::wait_for_copies_but<0>();
    bits = copied;
  }
  return start_slot(p, b, bits);
}

/// `start` is what start_slot returned. Not needed before the first token is done.
__device__ __forceinline__ FinalWrite final_write(const Params& p, int b, int64_t start) {
  if (p.disable_state_update != 0 || p.ssm_state_indices != nullptr || start == kNoSlot) {
    return {kNoSlot, kNever};
  }
  int64_t slot = start;
  int64_t after = p.T;
  if (p.output_state_indices != nullptr) {
    slot = checked_slot(p, load_index(p.output_state_indices, p.wide_output, b));
  }
  if (p.accepted_tokens != nullptr) after = load_index(p.accepted_tokens, p.wide_accepted, b);
  if (slot == kNoSlot || after < 0 || after > p.T) return {kNoSlot, kNever};
  return {slot, static_cast<int>(after)};
}

}  // namespace goldenrule::gpu
