// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a block as operands of its warps, with one gate per key channel. A decay per
// channel cannot be taken out of a sum over channels, so it goes into the operand: with D_t =
// alpha(0..t], the columns that S_0 is multiplied by are k^_t o D_t and q^_t o D_t, fp32 numbers
// and no longer the bf16 numbers that came. They are split into three bf16 terms, each rounded to
// nearest, and every warp of the block multiplies by the same terms, so they lie in shared memory
// as the operands that they are.
//
// The weights of the triangle are sums over channels that each have decays of their own, no product
// of matrices as long as gates have no bound:
//
//     a_tj = sum_c k^_t[c] alpha(j..t][c] k^_j[c]        b_tj likewise with q^_t
//
// Sixteen lanes take k^_t and q^_t and walk back from j = t, decaying them as they go; what they
// hold in the end are the columns. Decays are products of alpha, factor by factor, never quotients,
// so alpha = 0 is like any other. The order of every sum and product depends on t alone.
#pragma once

#include "gpu/common/bf16_terms.cuh"
#include "gpu/recurrent/mtp_config.cuh"
#include "gpu/recurrent/tokens.cuh"

namespace goldenrule::gpu::recurrent {

template <StateFormat Format, Shape S>
struct MtpChannelConfig : MtpConfig<Format, S> {
  using Base = MtpConfig<Format, S>;
  static constexpr bool kChannelGate = true;
  static constexpr int kTokensPerRound = kMtpTokens;
  static constexpr int kThreadChannels = Base::kPaddedK / kSumLanes;
  static constexpr int kProducts = 1;  // none
  /// Threads that share the work of one channel each, the first and the last of a block.
  static constexpr int kTeam = Base::kPaddedK;
  static_assert(Base::kThreads >= kTeam);

  /// Key channel of element e of lane lk of the eight that share a row: four neighbours at a time.
  __device__ static constexpr int channel(int e, int lk) {
    return e / 4 * kRowSpan + 4 * lk + e % 4;
  }
};

/// Operands of k^ and q^ decayed from the start: column g of step i, the lane's four channels.
template <class C>
struct DecayedColumns {
  uint4 term[kTerms][C::kChannelSteps][kWarp];  // {k, q}
};

/// Keys decayed to the end of a stored state as its operands: tokens 2t and 2t + 1 of channel g of
/// the pairs {0, 1} of a step.
template <class C>
struct DecayedKeys {
  uint2 term[kTerms][C::kChannelSteps][kWarp];
  float decay[C::kPaddedK];  // from the start
};

template <class C>
struct ChannelTokens : TokenStorage<C> {
  DecayedColumns<C> columns;
  DecayedKeys<C> keys;

  /// The columns, and weight[j][0][t] = a_tj (0 for j = t), weight[j][1][t] = b_tj, by the first
  /// threads of the block. Columns of tokens that the call does not have stay as they are: they
  /// reach no other column. Barriers outside.
  __device__ __forceinline__ void weigh(int count) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int t = static_cast<int>(threadIdx.x) / kLanes;
    const int last = t | 1;  // of the two tokens of a warp
    if (last - 1 >= count) return;
    const int from = t < count ? t : count - 1;
    float left[2][kOwn], right[kOwn], sum[2 * kMtpTokens];
    read(left[0], this->k[from], lane);
    read(left[1], this->q[from], lane);
    // Those of j < 0 are thrown away.
#pragma unroll
    for (int back = 0; back < kMtpTokens; ++back) {
      sum[back] = sum[kMtpTokens + back] = 0.f;
      if (back > last) continue;
      const int j = back <= from ? from - back : 0;
      read(right, this->k[j], lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& x = sum[half * kMtpTokens + back];
#pragma unroll
        for (int e = 0; e < kOwn; ++e) x = fmaf(left[half][e], right[e], x);
      }
      read(right, this->alpha[j], lane);
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        const float decay = back <= from ? right[e] : 1.f;
        left[0][e] *= decay;
        left[1][e] *= decay;
      }
    }
    static_assert(2 * kMtpTokens == kLanes, "every lane ends with one sum");
    reduce_scatter<1, 2 * kMtpTokens, kLanes / 2>(sum, lane);
    if (t >= count) return;
    const int half = lane / kMtpTokens, back = lane % kMtpTokens;
    if (back <= t) this->weight[t - back][half][t] = lane == 0 ? 0.f : sum[0];
    take(t, lane, left);
  }

  /// The keys of the state after token `end`, by the last threads of the block, one channel each.
  /// Later tokens are 0. Barriers outside.
  __device__ __forceinline__ void decay_keys(int end) {
    const int channel = static_cast<int>(threadIdx.x) - (C::kThreads - C::kTeam);
    if (channel < 0) return;
    float key[kMtpTokens], decay = 1.f;
#pragma unroll
    for (int t = 0; t < kMtpTokens; ++t) {
      key[t] = 0.f;
      if (t > end) continue;
      const float alpha = this->alpha[t][channel];
      decay *= alpha;
#pragma unroll
      for (int j = 0; j < t; ++j) key[j] *= alpha;
      key[t] = this->k[t][channel];
    }
    keys.decay[channel] = decay;
    const int g = channel % 16 / 4 * 2 + channel % 2;
    const int pair = channel % 4 / 2;
#pragma unroll
    for (int t = 0; t < kMtpTokens; t += 2) {
      const PairTerms x = split_pair_to_nearest(key[t], key[t + 1]);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        uint2& both = keys.term[i][channel / 16][4 * g + t / 2];
        reinterpret_cast<uint32_t*>(&both)[pair] = x.term[i];
      }
    }
  }

 private:
  static constexpr int kLanes = 16;  // of a token
  static constexpr int kOwn = C::kPaddedK / kLanes;
  static_assert(kLanes * kMtpTokens == C::kTeam);

  __device__ static constexpr int channel_of(int e, int lane) {
    return e / 4 * (4 * kLanes) + 4 * lane + e % 4;
  }
  __device__ __forceinline__ static void read(float (&x)[kOwn], const float* row, int lane) {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + channel_of(e, lane));
      x[e] = four.x;
      x[e + 1] = four.y;
      x[e + 2] = four.z;
      x[e + 3] = four.w;
    }
  }
  __device__ __forceinline__ void take(int token, int lane, const float (&x)[2][kOwn]) {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      PairTerms pair[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        pair[half][0] = split_pair_to_nearest(x[half][e], x[half][e + 1]);
        pair[half][1] = split_pair_to_nearest(x[half][e + 2], x[half][e + 3]);
      }
      const int channel = channel_of(e, lane);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        columns.term[i][channel / 16][4 * token + channel % 16 / 4] = make_uint4(
            pair[0][0].term[i], pair[0][1].term[i], pair[1][0].term[i], pair[1][1].term[i]);
      }
    }
  }
};

/// The columns of a lane, tokens 2t and 2t + 1, as mtp_solve.cuh wants them.
template <class C>
struct ChannelColumns {
  const ChannelTokens<C>& tokens;
  float beta[2];

  __device__ __forceinline__ ChannelColumns(const ChannelTokens<C>& of, Fragment lane)
      : tokens(of), beta{of.beta[2 * lane.t], of.beta[2 * lane.t + 1]} {}

  __device__ __forceinline__ void weights(int j, Fragment lane, float (&a)[2],
                                          float (&b)[2]) const {
    const float2 with_k = *reinterpret_cast<const float2*>(&tokens.weight[j][0][2 * lane.t]);
    const float2 with_q = *reinterpret_cast<const float2*>(&tokens.weight[j][1][2 * lane.t]);
    a[0] = with_k.x, a[1] = with_k.y;
    b[0] = with_q.x, b[1] = with_q.y;
  }

  /// `row`: the lane's first, within the block.
  __device__ __forceinline__ void values(int row, Fragment lane, LaneTokens<C>& v) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int i = 0; i < C::kLaneRows; i += 2) {
        const float* from = &tokens.v[2 * lane.t + c][row + i];
        const float2 two = *reinterpret_cast<const float2*>(from);
        v[i][c] = two.x;
        v[i + 1][c] = two.y;
      }
    }
  }
};

}  // namespace goldenrule::gpu::recurrent
