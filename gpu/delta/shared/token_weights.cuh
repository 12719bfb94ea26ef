// SPDX-License-Identifier: Apache-2.0
//
// What the tokens of a block are to each other: all that the closed form needs beside the state
// S_0 from which they start. With alpha(j..t] the product of alpha_{j+1} to alpha_t,
//
//     p_t = (alpha(0..t] k^_t) . S_0 + sum_{j<t} a_tj d_j       a_tj = (alpha(j..t] k^_t) . k^_j
//     d_t = beta_t (v_t - p_t)
//     o_t = (alpha(0..t] q^_t) . S_0 + sum_{j<=t} b_tj d_j      b_tj = (alpha(j..t] q^_t) . k^_j
//
// which is the recurrence with S_t = alpha_t S_{t-1} + k^_t d_t put into p_t and o_t: the state is
// read through two independent products per token instead of being rewritten between them, and a
// T x T triangle per head, computed here, carries the rest. No quotient of decays is ever formed,
// so alpha = 0 is like any other.
//
// Eight lanes take one k^_t or q^_t and walk back from j = t, decaying it as they go; what they
// hold in the end is decayed from the start. The order of every sum and product depends on
// the state format and K only, not on how many tokens follow.
#pragma once

#include "gpu/common/lane_sums.cuh"
#include "gpu/delta/shared/token_storage.cuh"

namespace goldenrule::gpu::recurrent {

/// Channels of eight lanes of a row in shared memory, 16 bytes at a time.
template <class C>
__device__ __forceinline__ void read_channels(float (&x)[C::kThreadChannels], const float* row,
                                              int lane) {
#pragma unroll
  for (int e = 0; e < C::kThreadChannels; e += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + C::channel(e, lane));
    x[e] = four.x;
    x[e + 1] = four.y;
    x[e + 2] = four.z;
    x[e + 3] = four.w;
  }
}

/// weight[j][0][t] = a_tj (0 for j = t), weight[j][1][t] = b_tj; and k^, q^ decayed from the start:
/// per channel in decayed_k and q, or a factor per head in `decay`.
template <class C, class P>
__device__ __forceinline__ void weigh_tokens(const P& p, int count, TokenStorage<C>& to) {
  static_assert(C::kThreads / kSumLanes >= 2 * C::kTokensPerRound,
                "eight lanes for every k^ and q^");
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const int group = static_cast<int>(threadIdx.x) / kSumLanes;
  const int half = group / C::kTokensPerRound;  // 0: k^, 1: q^
  const bool active = half < 2 && group % C::kTokensPerRound < count;
  const int t = active ? group % C::kTokensPerRound : 0;
  const bool by_channel = C::kChannelGate && p.channel_gate != 0;
  float left[C::kThreadChannels], right[C::kThreadChannels], sum[C::kTokensPerRound];
  // Eight lanes without a token take a k^, which nobody writes here.
  read_channels<C>(left, active && half == 1 ? to.q[t] : to.k[t], lane);
  // No branch: the sums of all j are independent, those of j < 0 are thrown away.
#pragma unroll
  for (int back = 0; back < C::kTokensPerRound; ++back) {
    const int j = back <= t ? t - back : 0;
    read_channels<C>(right, to.k[j], lane);
    sum[back] = 0.f;
#pragma unroll
    for (int e = 0; e < C::kThreadChannels; ++e) sum[back] = fmaf(left[e], right[e], sum[back]);
    if constexpr (C::kChannelGate) {
      read_channels<C>(right, to.alpha[j], lane);
      const bool decays = by_channel && back <= t;
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) left[e] *= decays ? right[e] : 1.f;
    }
  }
  static_assert(C::kTokensPerRound == kSumLanes, "every lane ends with the sum of one j");
  reduce_scatter<1>(sum, lane);
  const int j = t - lane;
  float decay = 1.f;
  if (!by_channel) {
#pragma unroll
    for (int back = 0; back + 1 < C::kTokensPerRound; ++back) {
      if (back < lane && back <= t) decay *= to.alpha[t - back][0];
    }
  }
  if (!active) return;
  if (j >= 0) to.weight[j][half][t] = half == 0 && lane == 0 ? 0.f : sum[0] * decay;
  if (j == 0 && half == 0) to.decay[t] = by_channel ? 1.f : decay * to.alpha[0][0];
  if constexpr (C::kChannelGate) {
    float* row = half == 1 ? to.q[t] : to.decayed_k[t];
#pragma unroll
    for (int e = 0; e < C::kThreadChannels; e += 4) {
      *reinterpret_cast<float4*>(row + C::channel(e, lane)) =
          make_float4(left[e], left[e + 1], left[e + 2], left[e + 3]);
    }
  }
}

}  // namespace goldenrule::gpu::recurrent
