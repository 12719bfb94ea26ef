// SPDX-License-Identifier: Apache-2.0
//
// What a row of drafts is, by the rules of goldenrule_gpu.h: where its tokens lie among packed
// ones, which token each of them continues, and where the states after them go. All of it is device
// data of any value, and no address outside a buffer is formed of it.
#pragma once

#include "gpu/common/spans.hpp"
#include "gpu/recurrent/rings.cuh"

namespace goldenrule::gpu::recurrent {

/// Whether the bounds of row b are taken as they are.
__device__ __forceinline__ bool has_bounds_in_range(const Params& p, int b) {
  const Drafts& d = p.draft;
  const int64_t begin = load_index(d.bounds, d.wide_bounds, b);
  const int64_t end = load_index(d.bounds, d.wide_bounds, int64_t{b} + 1);
  return begin >= 0 && end <= d.tokens && end >= begin && end - begin <= p.T;
}

/// The tokens of row b: of packed ones, or 0 to T - 1 of its own.
__device__ __forceinline__ Span tokens_of_row(const Params& p, int b) {
  const Drafts& d = p.draft;
  if (d.bounds == nullptr) return {0, p.T};
  Span span = span_between(load_index(d.bounds, d.wide_bounds, b),
                           load_index(d.bounds, d.wide_bounds, int64_t{b} + 1), d.tokens);
  if (span.count > p.T) span.count = p.T;
  return span;
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

/// The block of p.intermediate that the first token of the row leaves its state in, or -1.
__device__ __forceinline__ int64_t kept_row(const Params& p, int b) {
  const Drafts& d = p.draft;
  if (p.intermediate.data == nullptr) return -1;
  if (d.kept_by_token != 0) return 0;
  const int64_t row = d.kept.data != nullptr ? row_value(d.kept, b) : b;
  return row < d.kept_rows ? row : -1;
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
