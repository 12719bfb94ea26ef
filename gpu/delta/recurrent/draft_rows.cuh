// SPDX-License-Identifier: Apache-2.0
//
// What a row of drafts is beyond its tokens and its slots (row_slots.cuh), by the rules of
// goldenrule_gpu.h: which token each of them continues, and the second slot. All of it is device
// data of any value, and no address outside a buffer is formed of it.
#pragma once

#include "gpu/delta/recurrent/rings.cuh"

namespace goldenrule::gpu::recurrent {

/// Whether the bounds of row b are taken as they are.
__device__ __forceinline__ bool has_bounds_in_range(const Params& p, int b) {
  const Drafts& d = p.draft;
  const int64_t begin = load_index(d.bounds, d.wide_bounds, b);
  const int64_t end = load_index(d.bounds, d.wide_bounds, int64_t{b} + 1);
  return begin >= 0 && end <= d.tokens && end >= begin && end - begin <= p.T;
}

/// Which token of its row token t continues, as the caller says it; -1: none of them.
__device__ __forceinline__ int64_t given_parent(const Params& p, BlockPlace at, int t) {
  const Drafts& d = p.draft;
  if (d.parents == nullptr) return t - 1;
  return load_index(d.parents, d.wide_parents,
                    static_cast<int64_t>(d.parent_row) * at.b +
                        static_cast<int64_t>(d.parent_token) * (at.token0 + t));
}
__device__ __forceinline__ bool is_parent(int64_t parent, int t) {
  return is_within(parent, -1, t - 1);
}

/// The second slot of the row, with the number of tokens after which its state goes there; `start`
/// and `count` as in final_write.
__device__ __forceinline__ FinalWrite second_write(const Params& p, int b, int64_t start,
                                                   int count) {
  const Drafts& d = p.draft;
  if (d.second_slot.data == nullptr || p.disable_state_update != 0 || start == kNoSlot) {
    return {kNoSlot, kNever};
  }
  const int64_t slot = checked_slot(p, row_value(d.second_slot, b));
  const int64_t after = row_value(d.second_after, b);
  if (slot == kNoSlot || !is_within(after, 0, count)) return {kNoSlot, kNever};
  return {slot, static_cast<int>(after)};
}

}  // namespace goldenrule::gpu::recurrent
