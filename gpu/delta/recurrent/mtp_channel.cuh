// SPDX-License-Identifier: Apache-2.0
//
// MTP of KDA for 2 to 8 tokens with K = 128 and q, k in bf16: the closed form of token_weights.cuh,
// with its products with the state and its sums over tokens on the tensor cores, as in mtp.cuh. A
// block takes all tokens of a head and up to 128 value rows. What the rows have in common is made
// once by all of its warps (mtp_channel_tokens.cuh): norms, 8 x 128 gates, the weights a and b on
// the fp32 pipe, 4 % of the operations, decayed rows, and the keys of the first stored state. Then
// each warp works alone; only further stored states take two barriers each, before and behind their
// keys.
//
//     X = S_0 (k^ o D)^T,  Y = S_0 (q^ o D)^T
#pragma once

#include "gpu/delta/recurrent/mtp_block.cuh"
#include "gpu/delta/recurrent/mtp_channel_states.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/shared/mtp_channel_tokens.cuh"
#include "gpu/delta/shared/mtp_solve.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
struct MtpChannelStorage {
  WarpState<C> state[C::kWarps];
  ChannelTokens<C> tokens;
  DecayedKeys<C> keys;
};

/// Requests the tokens of the row and, from the slot of its start, the state of the warp. False:
/// the row is padded, by its slot or since it has no ring, and nothing is left to do.
template <class C>
__device__ __forceinline__ bool request_row(const Params& p, const MtpPlace& here, uint2 start_bits,
                                            bool has_ring, Tokens<C>& prepared,
                                            TokenStorage<C>& tokens, WarpState<C>& state,
                                            int64_t& start) {
  const BlockPlace& at = here.at;
  prepared.request(p, at, 0, here.count, tokens);
  start = start_slot(p, at.b, start_bits);
  if (start == kNoSlot || !has_ring) {
    write_zeros<C>(p, at, here.count);
    ptx::wait_for_copies();
    return false;
  }
  state.request(state_head<typename C::State>(p.state, start, at.hv), p.state.outer, here.warp_row0,
                here.lane_id);
  return true;
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    mtp_channel_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(128) unsigned char mtp_shared[];
  auto& storage = *reinterpret_cast<MtpChannelStorage<C>*>(mtp_shared);
  ChannelTokens<C>& tokens = storage.tokens;
  const MtpPlace here = begin_mtp<C>(p);
  const auto [lane, lane_id, at, count, warp_row0, row0] = here;
  WarpState<C>& state = storage.state[lane.warp];

  const uint2 start_bits = request_start_slot(p, at.b);
  Tokens<C> prepared;
  int64_t start;
  if (!request_row<C>(p, here, start_bits, true, prepared, tokens, state, start)) return;
  const FinalWrite final = final_write(p, at.b, start, count);
  const int follow = tokens_to_follow<C>(p, 0, count, count, final);
  prepared.convert(p, at, 0, count, tokens);
  // Half of a large block does the one, half the other.
  int end = next_kept(p, tokens, 0, follow, final);
  tokens.weigh(count);
  if (end < follow) tokens.decay_keys(end, storage.keys);
  __syncthreads();
  const ChannelColumns<C> columns(tokens, lane);
  ptx::wait_for_copies();
  __syncwarp();
  LaneTokens<C> v, x, y, d[1];
  multiply_state(state, tokens.columns, lane, x, y);
  columns.values(row0 - at.row0, lane, v);
  solve_triangle<C>(count, columns, lane, v, x, y, d[0]);
  store_output<C>(p, here, y);
  if (final.after == 0) {
    state.copy_to(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer,
                  warp_row0, lane_id);
  }
  const ChannelStates<C> kept(d);
#pragma unroll 1
  while (end < follow) {
    const int64_t row = kept_row(p, at.b);
    kept.store(state, storage.keys, targets_of<State>(p, at, row, tokens.slot[end], end, final),
               end, warp_row0, lane);
    end = next_kept(p, tokens, end + 1, follow, final);
    if (end == follow) break;
    __syncthreads();  // all warps are done with the keys
    tokens.decay_keys(end, storage.keys);
    __syncthreads();
  }
}

}  // namespace goldenrule::gpu::recurrent
