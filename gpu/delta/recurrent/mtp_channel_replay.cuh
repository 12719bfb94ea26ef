// SPDX-License-Identifier: Apache-2.0
//
// Replay of KDA for up to 8 tokens behind up to 16 pending ones, with K = 128, q and k in bf16 and
// the keys of the rings, too: mtp_channel.cuh with the pending tokens as more columns
// (channel_pending.cuh). Per head it reads S_0 and 16 (2 K + V) numbers of the ring at most, and
// writes T (2 K + V); a state only where a row flushes, from the same S_0.
//
// Half of a large block walks back through the tokens, the other half meanwhile makes what the
// tokens of the call leave in the ring.
#pragma once

#include "gpu/delta/recurrent/channel_pending.cuh"
#include "gpu/delta/recurrent/mtp_channel.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
struct ChannelReplayTokens : TokenStorage<C> {
  PendingGroup<C> pending;
  /// The columns until all warps have multiplied the state by them.
  union {
    DecayedColumns<C> columns;
    DecayedKeys<C, kPendingGroups> keys;
  };
};

template <class C>
struct MtpChannelReplayStorage {
  WarpState<C> state[C::kWarps];
  ChannelReplayTokens<C> tokens;
};

/// k^ and log alpha of the tokens of the row, by the last threads of the block, one channel each.
template <class C>
__device__ __forceinline__ void append_channels(const Params& p, const MtpPlace& here,
                                                const RingCursors& cursors,
                                                const Tokens<C>& prepared,
                                                const TokenStorage<C>& tokens) {
  const Rings& r = p.ring;
  const BlockPlace& at = here.at;
  const int channel = team_channel<C>();
  if (channel < 0 || !writes_gates(at)) return;
#pragma unroll 4
  for (int t = 0; t < here.count; ++t) {
    const int place = cursors.place(cursors.count + t);
    store_element(token_row(r.g, cursors.ring, place, at.hv) + channel * element_size(r.g_type),
                  r.g_type, prepared.log_alpha(p, t, channel, tokens));
    if (!writes_keys(p, at)) continue;
    store_element(token_row(r.k, cursors.ring, place, at.h) + channel * 2, Element::kBF16,
                  tokens.k[t][channel]);
  }
}

/// Weights and columns of the tokens of the row, and what they leave in the ring but d. Barriers
/// inside; all is ready on return.
template <class C>
__device__ __forceinline__ void weigh_with_pending(const Params& p, const MtpPlace& here,
                                                   const RingCursors& cursors,
                                                   const Tokens<C>& prepared, PendingRows<C>& rows,
                                                   ChannelReplayTokens<C>& tokens) {
  ChannelWalk<C> walk(here.count);
  if (walk.takes_part()) walk.weigh(tokens);
  append_channels<C>(p, here, cursors, prepared, tokens);
#pragma unroll 1
  for (int group = newest_group(cursors); group >= 0; --group) {
    rows.store(p, cursors, here.lane, group, tokens.pending);
    __syncthreads();
    if (group > 0) rows.request(p, here.at, cursors, here.lane, group - 1);
    if (walk.takes_part()) {
      walk.weigh_older(tokens.pending.k, tokens.pending.alpha, pending_of_group(cursors, group),
                       tokens.pending.weight[group]);
    }
    if (group > 0) __syncthreads();  // all are done with the group
  }
  if (walk.takes_part()) walk.take(tokens.columns);
  __syncthreads();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    mtp_channel_replay_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(128) unsigned char mtp_shared[];
  auto& storage = *reinterpret_cast<MtpChannelReplayStorage<C>*>(mtp_shared);
  ChannelReplayTokens<C>& tokens = storage.tokens;
  const MtpPlace here = begin_mtp<C>(p);
  const auto [lane, lane_id, at, count, warp_row0, row0] = here;
  WarpState<C>& state = storage.state[lane.warp];

  const uint2 start_bits = request_start_slot(p, at.b);
  const RingCursors cursors = ring_cursors(p, at.b, count);
  Tokens<C> prepared;
  int64_t start;
  if (!request_row<C>(p, here, start_bits, cursors.ring != kNoRing, prepared, tokens, state,
                      start)) {
    return;
  }
  PendingRows<C> rows;
  rows.request(p, at, cursors, lane, newest_group(cursors));
  const int64_t slot = flush_slot(p, at.b, start, cursors);
  LaneTokens<C> earlier[kPendingGroups];
  if (count > 0) {
    prepared.convert(p, at, 0, count, tokens);
    weigh_with_pending<C>(p, here, cursors, prepared, rows, tokens);
  }
  const PendingCorrections<C> corrections(p, here, cursors);
  ptx::wait_for_copies();
  __syncwarp();
  if (count > 0) {
    const ChannelColumns<C> columns(tokens, lane);
    LaneTokens<C> v, x, y, d;
    multiply_state(state, tokens.columns, lane, x, y);
    corrections.get(p, earlier);
    add_pending<C>(cursors, tokens.pending, earlier, lane, x, y);
    columns.values(row0 - at.row0, lane, v);
    solve_triangle<C>(count, columns, lane, v, x, y, d);
    store_output<C>(p, here, y);
    store_corrections<C>(p, here, cursors, d);
  }
  if (slot == kNoSlot) return;
  State* head = state_head<State>(p.final_state, slot, at.hv);
  if (cursors.count == 0) {  // to the last bit
    state.copy_to(head, p.final_state.outer, warp_row0, lane_id);
    return;
  }
  __syncthreads();  // all warps are done with the columns
  decay_pending_keys<C>(p, at, cursors, tokens.keys);
  __syncthreads();
  corrections.get(p, earlier);
  const ChannelStates<C, kPendingGroups> folded(earlier);
  Targets<State> to;
  to.head[0] = head;
  to.outer[0] = to.outer[1] = p.final_state.outer;
  folded.store(state, tokens.keys, to, cursors.count - 1, warp_row0, lane);
}

}  // namespace goldenrule::gpu::recurrent
