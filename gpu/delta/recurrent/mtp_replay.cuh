// SPDX-License-Identifier: Apache-2.0
//
// Replay of GDN for up to 8 tokens behind up to 16 pending ones, with K = 128, q and k in bf16 and
// the keys of the rings, too: mtp.cuh with the pending tokens as more columns (pending_tokens.cuh).
// Per head it reads S_0 and 16 (K + V) numbers of the ring at most, and writes T (K / group + V); a
// state only where a row flushes, from the same S_0. So a verification whose tokens are accepted
// later by two cursors moves the bytes of one that keeps nothing.
//
// Of what a head and its tokens have in common the first warp of the first block writes keys and
// gates; each warp writes d of its rows.
#pragma once

#include "gpu/delta/recurrent/mtp.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/recurrent/pending_tokens.cuh"

namespace goldenrule::gpu::recurrent {

/// The part of x and y that pending tokens have; the factors of the start state take their decay.
template <class C>
__device__ __forceinline__ void multiply_pending(PendingTokens<C>& pending, MtpTokens<C>& tokens,
                                                 LaneTokens<C>& x, LaneTokens<C>& y) {
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) x[row][c] = y[row][c] = 0.f;
  }
  pending.multiply(tokens, x, y);
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      x[row][c] *= tokens.k_from_start[c];
      y[row][c] *= tokens.q_from_start[c];
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    tokens.k_from_start[c] *= pending.decay;
    tokens.q_from_start[c] *= pending.decay;
  }
}

template <class C>
__device__ __forceinline__ void add(LaneTokens<C>& x, const LaneTokens<C>& more) {
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) x[row][c] += more[row][c];
  }
}

/// k^ and log alpha of the tokens of the row.
template <class C>
__device__ __forceinline__ void append_tokens(const Params& p, const MtpPlace& here,
                                              const RingCursors& cursors,
                                              const MtpTokens<C>& tokens) {
  const Rings& r = p.ring;
  Fragment lane = here.lane;
  lane.g = ptx::hidden_off_90(lane.g);  // what follows from it is not kept from before
  const BlockPlace& at = here.at;
  const int holder = lane.g / 2;  // the lane t that holds the factor of token g
  const float even = __shfl_sync(kAllLanes, tokens.k_factor[0], holder);
  const float odd = __shfl_sync(kAllLanes, tokens.k_factor[1], holder);
  const float factor = lane.g % 2 != 0 ? odd : even;
  if (lane.g >= here.count) return;
  const int place = cursors.place(cursors.count + lane.g);
  if (lane.t == 0) {
    store_element(token_row(r.g, cursors.ring, place, at.hv), r.g_type, tokens.log_alpha(p));
  }
  if (!writes_keys(p, at)) return;
  char* row = token_row(r.k, cursors.ring, place, at.h) + 2 * first_channel<C>(0, lane.t);
#pragma unroll
  for (int i = 0; i < C::kChannelSteps; ++i) {
    const uint2 k = tokens.k[i];
    const float four[4] = {bf16_low(k.x) * factor, bf16_high(k.x) * factor, bf16_low(k.y) * factor,
                           bf16_high(k.y) * factor};
    store_some<4>(row + 2 * first_channel<C>(i, 0), Element::kBF16, true, four);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    mtp_replay_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(128) unsigned char mtp_shared[];
  auto& storage = *reinterpret_cast<MtpStorage<C>*>(mtp_shared);
  const MtpPlace here = begin_mtp<C>(p);
  const auto [lane, lane_id, at, count, warp_row0, row0] = here;
  WarpState<C>& state = storage.state[lane.warp];

  copy_start_slot(p, at.b, storage.start[threadIdx.x]);
  const RingCursors cursors = ring_cursors(p, at.b, count);
  MtpTokens<C> tokens;
  tokens.request(p, at, count, lane);
  LaneValues<C> values;
  values.request(p, at, count, row0, lane);
  const int64_t start = copied_start_slot(p, at.b, storage.start[threadIdx.x]);
  if (start == kNoSlot || cursors.ring == kNoRing) {
    write_zeros<C>(p, at, count);
    return;
  }
  state.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane_id);
  PendingTokens<C> pending(p, at, cursors, row0, lane);
  pending.request();
  const int64_t slot = flush_slot(p, at.b, start, cursors);
  tokens.finish(p, lane);
  LaneTokens<C> v, x, y, d, more_x, more_y;
  values.get(p, v);
  multiply_pending(pending, tokens, more_x, more_y);
  ptx::wait_for_copies();
  __syncwarp();
  multiply_state(state, tokens, lane, x, y);
  add<C>(x, more_x);
  add<C>(y, more_y);
  solve_triangle<C>(count, tokens, lane, v, x, y, d);
  store_output<C>(p, here, y);
  store_corrections<C>(p, here, cursors, d);
  if (writes_gates(at) && lane.warp == 0) append_tokens<C>(p, here, cursors, tokens);
  if (slot == kNoSlot) return;
  State* head = state_head<State>(p.final_state, slot, at.hv);
  if (cursors.count == 0) {  // to the last bit
    state.copy_to(head, p.final_state.outer, warp_row0, lane_id);
  } else {
    pending.fold(state, head, p.final_state.outer);
  }
}

}  // namespace goldenrule::gpu::recurrent
