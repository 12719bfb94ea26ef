// SPDX-License-Identifier: Apache-2.0
//
// MTP of GDN for 2 to 8 tokens with K = 128 and q, k in bf16: the closed form of token_weights.cuh
// as products of matrices on the tensor cores. Two numbers for T = 8 and fp32 state: a head's state
// is read once, K V 4 bytes, for 4 K V T operations; on the fp32 pipe these alone take half the
// time of the bytes, and preparing tokens, summing over lanes and following the state token by
// token took twice that time. Here all that is left to the fp32 pipe is to split the state into
// operands.
//
// A warp is on its own, with no barrier: it takes kWarpRows value rows through all tokens and
// prepares the tokens of its head itself, which costs sixteen matrix instructions.
//
//     X = S_0 k^T,  Y = S_0 q^T             three bf16 terms of S_0, none lost (bf16_terms.cuh)
//     d_t = beta_t (v_t - x_t - sum_{j<t} a_tj d_j)          token after token, in fp32
//     o_t = y_t + sum_{j<=t} b_tj d_j
//     S_n = alpha(0..n] S_0 + sum_{j<n} (alpha(j..n] f_j d_j) k_j     each kept state from S_0
#pragma once

#include "gpu/delta/recurrent/mtp_block.cuh"
#include "gpu/delta/recurrent/mtp_state.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/shared/mtp_solve.cuh"
#include "gpu/delta/shared/mtp_tokens.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::recurrent {

/// x = S_0 . k_t and y = S_0 . q_t, each times its factor.
template <class C>
__device__ __forceinline__ void multiply_state(const WarpState<C>& state,
                                               const MtpTokens<C>& tokens, Fragment lane,
                                               LaneTokens<C>& x, LaneTokens<C>& y) {
  float sum_x[C::kRowTiles][4] = {}, sum_y[C::kRowTiles][4] = {};
  LaneSteps<C> s;
#pragma unroll
  for (int step = 0; step < C::kChannelSteps; ++step) {
    if (step % C::kStepsTogether == 0) state.read(s, step, lane);
#pragma unroll
    for (int tile = 0; tile < C::kRowTiles; ++tile) {
      const StateOperand<C> operand(s[step % C::kStepsTogether], tile);
      float with_k[4] = {}, with_q[4] = {};
#pragma unroll
      for (int term = operand.kStateTerms - 1; term >= 0; --term) {  // small ones first
        ptx::multiply_add(with_k, operand.a[term], tokens.k[step]);
        ptx::multiply_add(with_q, operand.a[term], tokens.q[step]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum_x[tile][i] += with_k[i];
        sum_y[tile][i] += with_q[i];
      }
    }
  }
  take_sums<C>(sum_x, sum_y, tokens.k_from_start, tokens.q_from_start, x, y);
}

/// Makes S_n, n = 1, 2, .. in turn, from S_0 and d.
template <class C>
class KeptStates {
 public:
  using State = typename C::State;

  __device__ __forceinline__ explicit KeptStates(const MtpTokens<C>& tokens) {
#pragma unroll
    for (int i = 0; i < C::kChannelSteps; ++i) {
      k_[i][0] = ptx::transpose(tokens.k[i].x);
      k_[i][1] = ptx::transpose(tokens.k[i].y);
    }
  }

  /// On to the state after token t.
  __device__ __forceinline__ void advance(const MtpTokens<C>& tokens, Fragment lane, int t) {
    const float alpha = of_token(tokens.alpha, t);
    decay_ *= alpha;
    mask_ = 0;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int token = 2 * lane.t + c;
      weight_[c] = token == t ? tokens.k_factor[c] : weight_[c] * alpha;
      if (token <= t) mask_ |= c == 0 ? 0x0000ffffu : 0xffff0000u;
    }
  }

  /// Tokens after t take no part, not even as a NaN times 0: they are cut out of both operands.
  __device__ __forceinline__ void store(const WarpState<C>& state, const LaneTokens<C>& d,
                                        const Targets<State>& to, int row0, Fragment lane) const {
    uint32_t large[C::kRowTiles][4], small[C::kRowTiles][4];
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
      const PairTerms e = split_pair(weight_[0] * d[row][0], weight_[1] * d[row][1]);
      large[row / 2][row % 2] = e.term[0] & mask_;
      large[row / 2][2 + row % 2] = e.term[1] & mask_;
      small[row / 2][row % 2] = e.term[2] & mask_;
      small[row / 2][2 + row % 2] = 0;
    }
    LaneSteps<C> s;
#pragma unroll
    for (int step = 0; step < C::kChannelSteps; ++step) {
      const int place = step % C::kStepsTogether;
      if (place == 0) state.read(s, step, lane);
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t k = k_[step][pair] & ptx::hidden(mask_);
#pragma unroll
        for (int tile = 0; tile < C::kRowTiles; ++tile) {
          float sum[4] = {};
          ptx::multiply_add(sum, small[tile], make_uint2(k, k));
          ptx::multiply_add(sum, large[tile], make_uint2(k, k));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            State& x = s[place][2 * tile + i / 2][2 * pair + i % 2];
            round_to(x, fmaf(decay_, to_float(x), sum[i]));
          }
        }
      }
      if (place + 1 == C::kStepsTogether) WarpState<C>::store(s, to, row0, step - place, lane);
    }
  }

 private:
  uint32_t k_[C::kChannelSteps][2];  // tokens 2t and 2t + 1 of one channel
  float weight_[2] = {};             // alpha(j..n] f_j
  float decay_ = 1.f;
  uint32_t mask_ = 0;
};

/// What a block holds in shared memory; its warps share nothing.
template <class C>
struct MtpStorage {
  WarpState<C> state[C::kWarps];
  uint2 start[C::kThreads];  // the index of the slot, each thread its own copy
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    mtp_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(128) unsigned char mtp_shared[];
  auto& storage = *reinterpret_cast<MtpStorage<C>*>(mtp_shared);
  const MtpPlace here = begin_mtp<C>(p);
  const auto [lane, lane_id, at, count, warp_row0, row0] = here;
  WarpState<C>& state = storage.state[lane.warp];

  copy_start_slot(p, at.b, storage.start[threadIdx.x]);
  MtpTokens<C> tokens;
  tokens.request(p, at, count, lane);
  LaneValues<C> values;
  values.request(p, at, count, row0, lane);
  const int64_t start = copied_start_slot(p, at.b, storage.start[threadIdx.x]);
  if (start == kNoSlot) {
    write_zeros<C>(p, at, count);
    return;
  }
  state.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane_id);
  const FinalWrite final = final_write(p, at.b, start, count);
  tokens.finish(p, lane);
  LaneTokens<C> v;
  values.get(p, v);
  ptx::wait_for_copies();
  __syncwarp();
  LaneTokens<C> x, y, d;
  multiply_state(state, tokens, lane, x, y);
  solve_triangle<C>(count, tokens, lane, v, x, y, d);
  store_output<C>(p, here, y);
  if (final.after == 0) {
    state.copy_to(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer,
                  warp_row0, lane_id);
  }
  const int follow = tokens_to_follow<C>(p, 0, count, count, final);
  if (follow == 0) return;
  KeptStates<C> kept(tokens);
#pragma unroll 1
  for (int t = 0; t < follow; ++t) {
    kept.advance(tokens, lane, t);
    const int64_t slot = of_token(tokens.slot, t);
    if (state_is_kept(p, slot, t, final)) {
      const int64_t row = kept_row(p, at.b);
      kept.store(state, d, targets_of<State>(p, at, row, slot, t, final), warp_row0, lane);
    }
  }
}

}  // namespace goldenrule::gpu::recurrent
