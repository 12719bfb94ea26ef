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
// hold in the end are the columns. Tokens from before the call, whose d are known, lengthen the way
// (channel_pending.cuh). Decays are products of alpha, factor by factor, never quotients, so alpha
// = 0 is like any other. The order of every sum and product depends on t alone.
#pragma once

#include "gpu/common/bf16_terms.cuh"
#include "gpu/delta/shared/mtp_config.cuh"
#include "gpu/delta/shared/tokens.cuh"

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

/// Keys of eight tokens as operands of a state: tokens 2t and 2t + 1 of channel g of the pairs
/// {0, 1} of a step.
template <class C>
struct KeyTerms {
  uint2 term[kTerms][C::kChannelSteps][kWarp];

  /// Those of one channel.
  __device__ __forceinline__ void put(int channel, const float (&key)[kMtpTokens]) {
    const ChannelPlace place = place_of_channel<C>(channel);
    const int g = place.t * 2 + channel % 2;
    const int pair = channel % 4 / 2;
#pragma unroll
    for (int t = 0; t < kMtpTokens; t += 2) {
      const PairTerms x = split_pair_to_nearest(key[t], key[t + 1]);
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        uint2& both = term[i][place.step][4 * g + t / 2];
        reinterpret_cast<uint32_t*>(&both)[pair] = x.term[i];
      }
    }
  }
};

/// What `Groups` times eight tokens add to a state, decayed to its end.
template <class C, int Groups = 1>
struct DecayedKeys {
  KeyTerms<C> group[Groups];
  float decay[C::kPaddedK];  // of the start state
};

/// Of the last of kThreads threads, which take one channel each; negative in the others.
template <class C>
__device__ __forceinline__ int team_channel() {
  return static_cast<int>(threadIdx.x) - (C::kThreads - C::kTeam);
}

/// The way back of a token through those before it. Sixteen of the first threads of the block hold
/// k^_t and q^_t, decayed from where they have come to; warps whose tokens the call does not have
/// take no part. Barriers outside.
template <class C>
class ChannelWalk {
 public:
  __device__ __forceinline__ explicit ChannelWalk(int count)
      : lane_(static_cast<int>(threadIdx.x) % kLanes),
        t_(static_cast<int>(threadIdx.x) / kLanes),
        count_(count) {}

  __device__ __forceinline__ bool takes_part() const { return last() - 1 < count_; }

  /// weight[j][0][t] = a_tj (0 for j = t), weight[j][1][t] = b_tj: back to the start of the call.
  __device__ __forceinline__ void weigh(TokenStorage<C>& tokens) {
    const int from = t_ < count_ ? t_ : count_ - 1;
    read(left_[0], tokens.k[from]);
    read(left_[1], tokens.q[from]);
    // Those of j < 0 are thrown away.
    float sum[2 * kMtpTokens];
#pragma unroll
    for (int back = 0; back < kMtpTokens; ++back) {
      sum[back] = sum[kMtpTokens + back] = 0.f;
      if (back > last()) continue;
      const bool here = back <= from;
      const int j = here ? from - back : 0;
      pass(tokens.k[j], tokens.alpha[j], here, back, sum);
    }
    const float own = own_sum(sum);
    const int back = lane_ % kMtpTokens;
    if (t_ < count_ && back <= t_) {
      tokens.weight[t_ - back][half()][t_] = lane_ == 0 ? 0.f : own;
    }
  }

  /// weight[half][t][i] of the first `here` of eight older tokens, from the newest to the oldest; 0
  /// for the others.
  __device__ __forceinline__ void weigh_older(const float (&k)[kMtpTokens][C::kPaddedK],
                                              const float (&alpha)[kMtpTokens][C::kPaddedK],
                                              int here,
                                              float (&weight)[2][kMtpTokens][kMtpTokens]) {
    float sum[2 * kMtpTokens];
#pragma unroll
    for (int i = kMtpTokens - 1; i >= 0; --i) {
      sum[i] = sum[kMtpTokens + i] = 0.f;
      if (i < here) pass(k[i], alpha[i], true, i, sum);
    }
    const float own = own_sum(sum);
    if (t_ < count_) weight[half()][t_][lane_ % kMtpTokens] = own;
  }

  /// What k^_t and q^_t have become, as columns. Those of tokens that the call does not have stay
  /// as they are: they reach no other column.
  __device__ __forceinline__ void take(DecayedColumns<C>& columns) const {
    if (t_ >= count_) return;
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      PairTerms pair[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* x = left_[half];
        pair[half][0] = split_pair_to_nearest(x[e], x[e + 1]);
        pair[half][1] = split_pair_to_nearest(x[e + 2], x[e + 3]);
      }
      const ChannelPlace place = place_of_channel<C>(channel_of(e));
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        columns.term[i][place.step][4 * t_ + place.t] = make_uint4(
            pair[0][0].term[i], pair[0][1].term[i], pair[1][0].term[i], pair[1][1].term[i]);
      }
    }
  }

 private:
  static constexpr int kLanes = 16;  // of a token
  static constexpr int kOwn = C::kPaddedK / kLanes;
  static_assert(kLanes * kMtpTokens == C::kTeam);
  static_assert(2 * kMtpTokens == kLanes, "every lane ends with one sum");

  /// Of the two tokens of a warp.
  __device__ __forceinline__ int last() const { return t_ | 1; }
  /// Of the sum that the lane ends with: of k^ or q^.
  __device__ __forceinline__ int half() const { return lane_ / kMtpTokens; }
  __device__ __forceinline__ int channel_of(int e) const {
    return e / 4 * (4 * kLanes) + 4 * lane_ + e % 4;
  }
  __device__ __forceinline__ void read(float (&x)[kOwn], const float* row) const {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + channel_of(e));
      x[e] = four.x;
      x[e + 1] = four.y;
      x[e + 2] = four.z;
      x[e + 3] = four.w;
    }
  }
  /// The sums with a token; then the decay to the one before it.
  __device__ __forceinline__ void pass(const float* key, const float* alpha, bool decays, int place,
                                       float (&sum)[2 * kMtpTokens]) {
    float right[kOwn];
    read(right, key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& x = sum[half * kMtpTokens + place];
#pragma unroll
      for (int e = 0; e < kOwn; ++e) x = fmaf(left_[half][e], right[e], x);
    }
    read(right, alpha);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const float decay = decays ? right[e] : 1.f;
      left_[0][e] *= decay;
      left_[1][e] *= decay;
    }
  }
  /// The sum over the lanes of number `lane_`.
  __device__ __forceinline__ float own_sum(float (&sum)[2 * kMtpTokens]) const {
    reduce_scatter<1, 2 * kMtpTokens, kLanes / 2>(sum, lane_);
    return sum[0];
  }

  const int lane_, t_, count_;
  float left_[2][kOwn];
};

template <class C>
struct ChannelTokens : TokenStorage<C> {
  DecayedColumns<C> columns;

  /// The columns and weights, by the first threads of the block. Barriers outside.
  __device__ __forceinline__ void weigh(int count) {
    ChannelWalk<C> walk(count);
    if (!walk.takes_part()) return;
    walk.weigh(*this);
    walk.take(columns);
  }

  /// The keys of the state after token `end`, by the last of kThreads threads, one channel each.
  /// Later tokens are 0. Barriers outside.
  __device__ __forceinline__ void decay_keys(int end, DecayedKeys<C>& keys) const {
    const int channel = team_channel<C>();
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
    keys.group[0].put(channel, key);
  }
};

/// The columns of a lane, tokens 2t and 2t + 1, as mtp_solve.cuh wants them.
template <class C>
struct ChannelColumns {
  const TokenStorage<C>& tokens;
  float beta[2];

  __device__ __forceinline__ ChannelColumns(const TokenStorage<C>& of, Fragment lane)
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
