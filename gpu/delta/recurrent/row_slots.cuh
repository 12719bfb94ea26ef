// SPDX-License-Identifier: Apache-2.0
//
// Which tokens a row of the batch has, and which blocks of state it reads and writes: the rules of
// goldenrule_gpu.h in one place. Every slot that is read goes through checked_slot.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/common/spans.hpp"
#include "gpu/delta/recurrent/params.hpp"
#include "gpu/delta/shared/block.cuh"

namespace goldenrule::gpu::recurrent {

inline constexpr int kNever = -1;

/// Where and when the state of a row is written back, apart from the scatter form.
struct FinalWrite {
  int64_t slot;  // kNoSlot: nothing to write
  int after;     // after this many tokens; kNever if there is nothing to write
};

__device__ __forceinline__ int64_t row_value(const RowList& list, int b) {
  return load_index(list.data, list.wide, int64_t{b} * list.step);
}

__device__ __forceinline__ bool is_within(int64_t x, int64_t low, int64_t high) {
  return x >= low && x <= high;
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

__device__ __forceinline__ int64_t ssm_slot(const Params& p, int b, int64_t t) {
  const int64_t at = static_cast<int64_t>(b) * p.ssm_row + t * p.ssm_token;
  return checked_slot(p, load_index(p.ssm_state_indices, p.wide_ssm, at));
}

/// kNoSlot: the row is padded. Without indices the slot is b, whatever the pad slot is; in the
/// scatter form that of the last accepted token, unless state_indices names it.
__device__ __forceinline__ int64_t start_slot(const Params& p, int b, uint2 requested) {
  if (p.state_indices != nullptr) {
    return checked_slot(p, index_from_bits(requested, p.wide_start));
  }
  if (p.ssm_state_indices != nullptr) {
    const int64_t n =
        load_index(p.num_accepted_tokens, p.wide_num_accepted, int64_t{b} * p.num_accepted_step);
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

/// `start` is what start_slot returned, `count` the tokens of the row. Not needed before the first
/// token is done.
__device__ __forceinline__ FinalWrite final_write(const Params& p, int b, int64_t start,
                                                  int count) {
  if (p.disable_state_update != 0 || p.ssm_state_indices != nullptr || start == kNoSlot) {
    return {kNoSlot, kNever};
  }
  int64_t slot = start;
  int64_t after = count;
  if (p.output_state_indices != nullptr) {
    slot = checked_slot(
        p, load_index(p.output_state_indices, p.wide_output, int64_t{b} * p.output_step));
  }
  if (p.accepted_tokens != nullptr)
    after = load_index(p.accepted_tokens, p.wide_accepted, int64_t{b} * p.accepted_step);
  if (slot == kNoSlot || after < 0 || after > count) return {kNoSlot, kNever};
  return {slot, static_cast<int>(after)};
}

/// The block of p.intermediate that the first token of the row leaves its state in, or -1.
__device__ __forceinline__ int64_t kept_row(const Params& p, int b) {
  const Drafts& d = p.draft;
  if (p.intermediate.data == nullptr) return -1;
  if (d.kept_by_token != 0) return 0;
  const int64_t row = d.kept.data != nullptr ? row_value(d.kept, b) : b;
  return row < d.kept_rows ? row : -1;
}

/// Whether the state after token t goes anywhere.
__device__ __forceinline__ bool state_is_kept(const Params& p, int64_t scatter_slot, int t,
                                              FinalWrite final) {
  return p.intermediate.data != nullptr || scatter_slot != kNoSlot || final.after == t + 1;
}

/// Where the state after token t goes: beside an intermediate state at most one other.
template <class State>
struct Targets {
  State* head[2] = {};  // nullptr: none
  int outer[2];
};

/// `kept`: what kept_row returned.
template <class State>
__device__ __forceinline__ Targets<State> targets_of(const Params& p, BlockPlace at, int64_t kept,
                                                     int64_t scatter_slot, int t,
                                                     FinalWrite final) {
  Targets<State> to;
  to.outer[0] = p.intermediate.outer;
  to.outer[1] = p.final_state.outer;
  if (p.intermediate.data != nullptr && kept >= 0) {
    const int step = (p.draft.kept_by_token != 0 ? at.token0 : 0) + t;
    to.head[0] = state_head<State>(p.intermediate, kept, at.hv) + step * p.intermediate_token;
  }
  const int64_t slot = scatter_slot != kNoSlot ? scatter_slot : final.slot;
  if (scatter_slot != kNoSlot || final.after == t + 1) {
    to.head[1] = state_head<State>(p.final_state, slot, at.hv);
  }
  return to;
}

/// Calls store(head, outer) for each target: one copy of the store code for all of them.
template <class C, class Store>
__device__ __forceinline__ void store_state(const Params& p, BlockPlace at, int64_t scatter_slot,
                                            int t, FinalWrite final, Store&& store) {
  const auto to = targets_of<typename C::State>(p, at, at.b, scatter_slot, t, final);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    // Not by index: what a loop indexes lies in local memory.
    auto* head = i == 0 ? to.head[0] : to.head[1];
    const int outer = i == 0 ? to.outer[0] : to.outer[1];
    if (head != nullptr) store(head, outer);
  }
}

/// How many tokens of the storage the state must follow: up to the last that is kept or carried on
/// to the rest of the `all` tokens of the row.
template <class C>
__device__ __forceinline__ int tokens_to_follow(const Params& p, int first, int count, int all,
                                                FinalWrite final) {
  const bool scatters = p.ssm_state_indices != nullptr && p.disable_state_update == 0;
  if (p.intermediate.data != nullptr || scatters || first + count < all) return count;
  return final.after > first ? final.after - first : 0;
}

}  // namespace goldenrule::gpu::recurrent
