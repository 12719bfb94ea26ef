// SPDX-License-Identifier: Apache-2.0
//
// A state of fp32 or bf16 times the tokens of mtp_channel_tokens.cuh: the two products in front of
// the triangle, and what the tokens add to the state behind it.
//
//     X = S_0 (k^ o D)^T,  Y = S_0 (q^ o D)^T
//     S_n = diag(D_n) S_0 + sum_{s<=n} (alpha(s..n] o k^_s) d_s^T
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

#include "gpu/common/term_products.cuh"
#include "gpu/common/vectors.cuh"
#include "gpu/delta/shared/mtp_channel_tokens.cuh"
#include "gpu/delta/shared/mtp_operands.cuh"

namespace goldenrule::gpu::recurrent {

/// The state of a warp: reads the lane's part of steps of 16 channels.
template <class S, class C>
concept has_steps = requires(const S& state, LaneSteps<C>& to, Fragment lane) {
  state.read(to, 0, lane);
};

/// x = S_0 . (k^_t o D_t) and y = S_0 . (q^_t o D_t).
template <class C, has_steps<C> State>
__device__ __forceinline__ void multiply_state(const State& state, const DecayedColumns<C>& columns,
                                               Fragment lane, LaneTokens<C>& x, LaneTokens<C>& y) {
  const int own = 4 * lane.g + lane.t;
  float sum_x[C::kRowTiles][4] = {}, sum_y[C::kRowTiles][4] = {};
  LaneSteps<C> s;
#pragma unroll
  for (int step = 0; step < C::kChannelSteps; ++step) {
    if (step % C::kStepsTogether == 0) state.read(s, step, lane);
    uint4 column[kTerms];
#pragma unroll
    for (int term = 0; term < kTerms; ++term) column[term] = columns.term[term][step][own];
#pragma unroll
    for (int tile = 0; tile < C::kRowTiles; ++tile) {
      const StateOperand<C> operand(s[step % C::kStepsTogether], tile);
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
  constexpr float kNone[2] = {1.f, 1.f};  // the columns have their decays
  take_sums<C>(sum_x, sum_y, kNone, kNone, x, y);
}

/// d of `Groups` times eight tokens as the left operand of what they add to the state.
template <class C, int Groups = 1>
class Corrections {
 public:
  /// d[group][row][token].
  __device__ __forceinline__ explicit Corrections(const LaneTokens<C> (&d)[Groups]) {
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
#pragma unroll
      for (int row = 0; row < C::kLaneRows; ++row) {
        d_[group][row] = split_pair_to_nearest(d[group][row][0], d[group][row][1]);
      }
    }
  }

  /// Those of tokens 0 to `end`. Later tokens take no part, not even as a NaN times 0: they are cut
  /// out here and 0 in the keys.
  [[nodiscard]] __device__ __forceinline__ Corrections until(int end, Fragment lane) const {
    Corrections x = *this;
    x.end_ = end;
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      const int token = kMtpTokens * group + 2 * lane.t;
      const uint32_t mask =
          (token <= end ? 0x0000ffffu : 0u) | (token + 1 <= end ? 0xffff0000u : 0u);
#pragma unroll
      for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
        for (int term = 0; term < kTerms; ++term) x.d_[group][row].term[term] &= mask;
      }
    }
    return x;
  }

  /// A step of S_0 becomes that of the state that the keys are decayed to.
  __device__ __forceinline__ void follow(LaneStep<C>& s, const DecayedKeys<C, Groups>& keys,
                                         int step, Fragment lane) const {
    const float4 four =
        *reinterpret_cast<const float4*>(&keys.decay[first_channel<C>(step, lane.t)]);
    const float decay[4] = {four.x, four.y, four.z, four.w};
    float sum[2][C::kRowTiles][4];
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      if (group > 0 && kMtpTokens * group > end_) continue;
      add_products(sum, d_[group], keys.group[group], step, 4 * lane.g + lane.t, group == 0);
    }
#pragma unroll
    for (int i = 0; i < 4 * C::kLaneRows; ++i) {
      const int row = i / 4, channel = i % 4;
      auto& x = s[row][channel];
      const float more = sum[channel / 2][row / 2][row % 2 * 2 + channel % 2];
      round_to(x, fmaf(decay[channel], to_float(x), more));
    }
  }

 private:
  /// sum[pair of channels][tile] += the products of a group with its keys; = those of the first.
  __device__ __forceinline__ static void add_products(float (&sum)[2][C::kRowTiles][4],
                                                      const PairTerms (&d)[C::kLaneRows],
                                                      const KeyTerms<C>& keys, int step, int own,
                                                      bool first) {
    uint2 key[kTerms];
#pragma unroll
    for (int term = 0; term < kTerms; ++term) key[term] = keys.term[term][step][own];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      PairTerms column;
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        column.term[term] = pair == 0 ? key[term].x : key[term].y;
      }
#pragma unroll
      for (int tile = 0; tile < C::kRowTiles; ++tile) {
        const PairTerms rows[2] = {d[2 * tile], d[2 * tile + 1]};
        float more[4] = {};
        multiply_terms(more, rows, column);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[pair][tile][i] = first ? more[i] : sum[pair][tile][i] + more[i];
        }
      }
    }
  }

  PairTerms d_[Groups][C::kLaneRows];
  int end_ = kMtpTokens * Groups - 1;
};

}  // namespace goldenrule::gpu::recurrent
