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
//
// How many terms. S_0 = s0 + s1 + s2 is cut off, so |s1| <= 2^-7 |S_0|, |s2| <= 2^-15 |S_0|; the
// columns w = w0 + w1 + w2 are rounded to nearest, so |w1| <= 2^-8 |w|, |w2| <= 2^-17 |w|. Of the
// nine products
//
//     s0 w0, s0 w1, s1 w0, s0 w2, s1 w1, s2 w0        are made, and
//     s1 w2 + s2 w1 + s2 w2 <= (2^-24 + 2^-23 + 2^-32) |S_0 w|   are left out,
//
// with signs that are those of w2 and w1, either one: per product of a channel what three roundings
// of an fp32 chain may lose at worst, where that chain has 128. A state in bf16 is one term, and
// its three products are exact. The tensor cores truncate their sums; so each sums 16 channels, the
// small products first, and these sums are added in fp32, rounded to nearest.
#pragma once

#include "gpu/recurrent/mtp_block.cuh"
#include "gpu/recurrent/mtp_channel_states.cuh"
#include "gpu/recurrent/mtp_channel_tokens.cuh"
#include "gpu/recurrent/mtp_solve.cuh"

namespace goldenrule::gpu::recurrent {

/// x = S_0 . (k^_t o D_t) and y = S_0 . (q^_t o D_t).
template <class C>
__device__ __forceinline__ void multiply_state(const WarpState<C>& state,
                                               const DecayedColumns<C>& columns, Fragment lane,
                                               LaneTokens<C>& x, LaneTokens<C>& y) {
  const int own = 4 * lane.g + lane.t;
  float sum_x[C::kRowTiles][4] = {}, sum_y[C::kRowTiles][4] = {};
#pragma unroll
  for (int step = 0; step < C::kChannelSteps; ++step) {
    LaneStep<C> s;
    state.read(s, step, lane);
    uint4 column[kTerms];
#pragma unroll
    for (int term = 0; term < kTerms; ++term) column[term] = columns.term[term][step][own];
#pragma unroll
    for (int tile = 0; tile < C::kRowTiles; ++tile) {
      const StateOperand<C> operand(s, tile);
      float with_k[4] = {}, with_q[4] = {};
      // The products of terms that begin with the same number of zeros, small ones first.
#pragma unroll
      for (int zeros = kTerms - 1; zeros >= 0; --zeros) {
#pragma unroll
        for (int term = 0; term < operand.kStateTerms; ++term) {
          if (term > zeros) continue;
          const uint4& with = column[zeros - term];
          ptx::multiply_add(with_k, operand.a[term], make_uint2(with.x, with.y));
          ptx::multiply_add(with_q, operand.a[term], make_uint2(with.z, with.w));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum_x[tile][i] += with_k[i];
        sum_y[tile][i] += with_q[i];
      }
    }
  }
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      x[row][c] = sum_x[row / 2][row % 2 * 2 + c];
      y[row][c] = sum_y[row / 2][row % 2 * 2 + c];
    }
  }
}

template <class C>
struct MtpChannelStorage {
  WarpState<C> state[C::kWarps];
  ChannelTokens<C> tokens;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    mtp_channel_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(128) unsigned char mtp_shared[];
  auto& storage = *reinterpret_cast<MtpChannelStorage<C>*>(mtp_shared);
  ChannelTokens<C>& tokens = storage.tokens;
  const MtpPlace here = begin_mtp<C>(p);
  const auto [lane, lane_id, at, warp_row0, row0] = here;
  WarpState<C>& state = storage.state[lane.warp];

  const uint2 start_bits = request_start_slot(p, at.b);
  Tokens<C> prepared;
  prepared.request(p, at, 0, p.T, tokens);
  const int64_t start = start_slot(p, at.b, start_bits);
  if (start == kNoSlot) {
    write_zeros<C>(p, at, p.T);
    ptx::wait_for_copies();
    return;
  }
  state.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane_id);
  const FinalWrite final = final_write(p, at.b, start, p.T);
  const int follow = tokens_to_follow<C>(p, 0, p.T, final);
  prepared.convert(p, at, 0, p.T, tokens);
  // Half of a large block does the one, half the other.
  int end = next_kept(p, tokens, 0, follow, final);
  tokens.weigh(p.T);
  if (end < follow) tokens.decay_keys(end);
  __syncthreads();
  const ChannelColumns<C> columns(tokens, lane);
  ptx::wait_for_copies();
  __syncwarp();
  LaneTokens<C> v, x, y, d;
  multiply_state(state, tokens.columns, lane, x, y);
  columns.values(row0 - at.row0, lane, v);
  solve_triangle<C>(p.T, columns, lane, v, x, y, d);
  store_output<C>(p, here, y);
  if (final.after == 0) {
    state.copy_to(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer,
                  warp_row0, lane_id);
  }
  const ChannelStates<C> kept(d);
#pragma unroll 1
  while (end < follow) {
    kept.store(state, tokens.keys, targets_of<State>(p, at, tokens.slot[end], end, final), end,
               warp_row0, lane);
    end = next_kept(p, tokens, end + 1, follow, final);
    if (end == follow) break;
    __syncthreads();  // all warps are done with the keys
    tokens.decay_keys(end);
    __syncthreads();
  }
}

}  // namespace goldenrule::gpu::recurrent
