// SPDX-License-Identifier: Apache-2.0
//
// The pending tokens of a ring with one gate per key channel. Their corrections are known, so the
// way back of a token (mtp_channel_tokens.cuh) goes on through them: with A_i = alpha(i..n] the
// decay from pending token i to the last, channel by channel,
//
//     c_ti = sum_c k^_t[c] D_t[c] A_i[c] k_i[c]             likewise with q^_t
//     S_n (k^_t o D_t) = S_0 (k^_t o D_t o A_0) + sum_i c_ti d_i
//     S_n              = diag(A_0) S_0 + sum_i (A_i o k_i) d_i^T
//
// No d of these depends on another, so what was a chain of updates of the state is a sum over one
// more column each. Decays are products in the order of tokens, never quotients.
//
// Eight pending tokens are a group, counted from the oldest one; the newest group comes first.
#pragma once

#include "gpu/delta/recurrent/ring_corrections.cuh"
#include "gpu/delta/shared/mtp_channel_tokens.cuh"

namespace goldenrule::gpu::recurrent {

/// How many tokens of a group are pending; 0 or less if it has none.
__device__ __forceinline__ int pending_of_group(const RingCursors& cursors, int group) {
  const int left = cursors.count - kMtpTokens * group;
  return left < kMtpTokens ? left : kMtpTokens;
}

/// -1 if nothing is pending.
__device__ __forceinline__ int newest_group(const RingCursors& cursors) {
  return (cursors.count + kMtpTokens - 1) / kMtpTokens - 1;
}

/// A group in shared memory, and the weights of all groups: [group][k^, q^][token][pending token].
template <class C>
struct PendingGroup {
  float k[kMtpTokens][C::kPaddedK];
  float alpha[kMtpTokens][C::kPaddedK];
  alignas(16) float weight[kPendingGroups][2][kMtpTokens][kMtpTokens];
};

/// Keys and gates of a group on their way there: a warp takes a token at a time, a lane four
/// channels of it.
template <class C>
class PendingRows {
 public:
  /// Issues the loads; none where `group` is negative.
  __device__ __forceinline__ void request(const Params& p, BlockPlace at,
                                          const RingCursors& cursors, Fragment lane, int group) {
    if (group < 0) return;
    const Rings& r = p.ring;
    const int size = element_size(r.g_type);
    const int channel = 4 * (4 * lane.g + lane.t);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int token = kMtpTokens * group + own(lane, i);
      if (token >= cursors.count) continue;
      const int place = cursors.place(token);
      k_[i] = *reinterpret_cast<const uint2*>(token_row(r.k, cursors.ring, place, at.h) +
                                              channel * static_cast<int>(sizeof(uint16_t)));
      g_[i] = load_some_bits<4>(token_row(r.g, cursors.ring, place, at.hv) + channel * size,
                                r.g_type, r.g_unit >= 4 * size);
    }
  }

  /// Tokens that are not there are left out. Barriers outside.
  __device__ __forceinline__ void store(const Params& p, const RingCursors& cursors, Fragment lane,
                                        int group, PendingGroup<C>& to) const {
    const int channel = 4 * (4 * lane.g + lane.t);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int token = own(lane, i);
      if (token >= pending_of_group(cursors, group)) continue;
      float4 g;
      with_type(p.ring.g_type, [&](auto type) { g = four_from_bits<decltype(type)>(g_[i]); });
      *reinterpret_cast<float4*>(&to.k[token][channel]) = Typed<Element::kBF16>::to_float(k_[i]);
      *reinterpret_cast<float4*>(&to.alpha[token][channel]) =
          make_float4(expf(g.x), expf(g.y), expf(g.z), expf(g.w));
    }
  }

 private:
  static_assert(kMtpTokens % C::kWarps == 0 && 4 * kWarp == C::kPaddedK);
  static constexpr int kOwn = kMtpTokens / C::kWarps;

  __device__ static __forceinline__ int own(Fragment lane, int i) {
    return lane.warp + i * C::kWarps;
  }

  uint2 k_[kOwn];
  uint4 g_[kOwn];
};

/// d of all groups, the rows of the lane.
template <class C>
struct PendingCorrections {
  RingCorrections<C> group[kPendingGroups];

  /// Issues the loads.
  __device__ __forceinline__ PendingCorrections(const Params& p, const MtpPlace& here,
                                                const RingCursors& cursors) {
#pragma unroll
    for (int i = 0; i < kPendingGroups; ++i) {
      group[i].load(p, here.at, cursors, here.row0, here.lane, i);
    }
  }

  __device__ __forceinline__ void get(const Params& p, LaneTokens<C> (&d)[kPendingGroups]) const {
#pragma unroll
    for (int i = 0; i < kPendingGroups; ++i) group[i].get(p.ring.d_type, d[i]);
  }
};

/// Adds sum_i c_ti d_i to x and the same with q^ to y.
template <class C>
__device__ __forceinline__ void add_pending(const RingCursors& cursors, const PendingGroup<C>& of,
                                            const LaneTokens<C> (&d)[kPendingGroups], Fragment lane,
                                            LaneTokens<C>& x, LaneTokens<C>& y) {
#pragma unroll
  for (int group = kPendingGroups - 1; group >= 0; --group) {
    if (pending_of_group(cursors, group) <= 0) continue;
    PairTerms column[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 two =
          *reinterpret_cast<const float2*>(&of.weight[group][half][lane.g][2 * lane.t]);
      column[half] = split_pair_to_nearest(two.x, two.y);
    }
#pragma unroll
    for (int tile = 0; tile < C::kRowTiles; ++tile) {
      PairTerms rows[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto& pair = d[group][2 * tile + i];
        rows[i] = split_pair_to_nearest(pair[0], pair[1]);
      }
      add_products<C>(x, tile, rows, column[0]);
      add_products<C>(y, tile, rows, column[1]);
    }
  }
}

/// The keys of S_n and the decay of S_0 in it, by the last threads of the block, one channel each.
/// They are read from the ring once more: rows that flush are few. Barriers outside.
template <class C>
__device__ __forceinline__ void decay_pending_keys(const Params& p, BlockPlace at,
                                                   const RingCursors& cursors,
                                                   DecayedKeys<C, kPendingGroups>& keys) {
  const int channel = team_channel<C>();
  if (channel < 0) return;
  const Rings& r = p.ring;
  float decay = 1.f;
#pragma unroll 1
  for (int group = kPendingGroups - 1; group >= 0; --group) {
    const int here = pending_of_group(cursors, group);
    if (here <= 0) continue;
    uint32_t k[kMtpTokens], g[kMtpTokens];
#pragma unroll
    for (int i = 0; i < kMtpTokens; ++i) {
      if (i >= here) continue;
      const int place = cursors.place(kMtpTokens * group + i);
      k[i] = load_bits(token_row(r.k, cursors.ring, place, at.h) + channel * 2, Element::kBF16);
      g[i] = load_bits(
          token_row(r.g, cursors.ring, place, at.hv) + channel * element_size(r.g_type), r.g_type);
    }
    float key[kMtpTokens];
#pragma unroll
    for (int i = kMtpTokens - 1; i >= 0; --i) {
      key[i] = 0.f;
      if (i >= here) continue;
      key[i] = decay * from_bits(k[i], Element::kBF16);
      decay *= expf(from_bits(g[i], r.g_type));
    }
    keys.group[group].put(channel, key);
  }
  keys.decay[channel] = decay;
}

}  // namespace goldenrule::gpu::recurrent
