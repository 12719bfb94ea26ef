// SPDX-License-Identifier: Apache-2.0
//
// Which tokens and which blocks of state a sequence has: the rules of goldenrule_gpu.h in one
// place. Whatever the device data hold, no place outside a buffer is formed from it.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/delta/prefill/params.hpp"
#include "gpu/delta/prefill/positions.hpp"

namespace goldenrule::gpu::prefill {

/// The packed tokens of sequence n.
__device__ __forceinline__ Span tokens_of(const Params& p, int n) {
  return span_between(load_index(p.cu_seqlens, p.wide_seqlens, n),
                      load_index(p.cu_seqlens, p.wide_seqlens, n + 1), p.total);
}

/// kNoSlot: the sequence is padded: o = 0, and no state is touched. Without indices the slot is n,
/// whatever the pad slot is. Nothing is read from it where p.state.data is null.
__device__ __forceinline__ int64_t start_slot(const Params& p, int n) {
  if (p.state_indices == nullptr) return n;
  return checked_slot(p, load_index(p.state_indices, p.wide_start, int64_t{n} * p.start_step));
}

/// Where the final state goes, in p.final_state; kNoSlot: nowhere. `start` is that of start_slot.
__device__ __forceinline__ int64_t final_slot(const Params& p, int n, int64_t start) {
  if (p.disable_state_update != 0 || start == kNoSlot) return kNoSlot;
  if (p.output_state_indices == nullptr) return start;
  return checked_slot(
      p, load_index(p.output_state_indices, p.wide_output, int64_t{n} * p.output_step));
}

/// The query/key head of value head hv.
__device__ __forceinline__ int qk_head(const Params& p, int hv) {
  const int in_group = p.by_group.quotient(hv);
  return p.tiled_heads ? hv - in_group * p.group : in_group;
}

}  // namespace goldenrule::gpu::prefill
