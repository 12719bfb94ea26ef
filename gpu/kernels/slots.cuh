// SPDX-License-Identifier: Apache-2.0
//
// Which blocks of state a row of the batch reads and writes: the rules of goldenrule_gpu.h in one
// place. Everything read here is device data that the host cannot check, so a slot outside the
// pool is treated like the pad slot and no address is ever formed from it.
#pragma once

#include "gpu/kernels/elements.cuh"

namespace goldenrule::gpu {

inline constexpr int64_t kNoSlot = -1;
inline constexpr int kNever = -1;

struct RowSlots {
  int64_t start;    // kNoSlot: the row is padded
  int64_t final;    // kNoSlot: nothing to write
  int final_after;  // tokens before the final write; kNever if there is none
};

__device__ __forceinline__ int64_t checked_slot(const Params& p, int64_t slot) {
  return slot == p.pad_slot || slot < 0 || slot >= p.slots ? kNoSlot : slot;
}

__device__ __forceinline__ int64_t ssm_slot(const Params& p, int b, int64_t t) {
  const int64_t at = static_cast<int64_t>(b) * p.ssm_row + t * p.ssm_token;
  return checked_slot(p, load_index(p.ssm_state_indices, p.wide_ssm, at));
}

__device__ __forceinline__ RowSlots row_slots(const Params& p, int b) {
  if (p.ssm_state_indices != nullptr) {
    const int64_t n = load_index(p.num_accepted_tokens, p.wide_num_accepted, b);
    const bool usable = n >= 1 && n <= p.T;
    return {usable ? ssm_slot(p, b, n - 1) : kNoSlot, kNoSlot, kNever};
  }
  // Without indices row b has slot b, whatever the pad slot is.
  int64_t start = b;
  int64_t output = b;
  if (p.state_indices != nullptr) {
    start = load_index(p.state_indices, p.wide_start, b);
  }
  if (p.output_state_indices != nullptr) {
    output = load_index(p.output_state_indices, p.wide_output, b);
  }
  int64_t after = p.T;
  if (p.accepted_tokens != nullptr) after = load_index(p.accepted_tokens, p.wide_accepted, b);
  if (p.state_indices != nullptr) start = checked_slot(p, start);
  output = p.output_state_indices != nullptr ? checked_slot(p, output) : start;
  const bool writes = p.disable_state_update == 0 && start != kNoSlot && output != kNoSlot &&
                      after >= 0 && after <= p.T;
  return {start, writes ? output : kNoSlot, writes ? static_cast<int>(after) : kNever};
}

}  // namespace goldenrule::gpu
