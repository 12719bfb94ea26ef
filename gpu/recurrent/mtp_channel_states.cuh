// SPDX-License-Identifier: Apache-2.0
//
// Stored states with one gate per key channel, each from S_0:
//
//     S_n = diag(D_n) S_0 + sum_{s<=n} (alpha(s..n] o k^_s) d_s^T
//
// The block makes the keys of a state, decayed to its end (mtp_channel_tokens.cuh), and each warp
// multiplies them by d of its rows.
#pragma once

#include "gpu/common/term_products.cuh"
#include "gpu/recurrent/mtp_channel_tokens.cuh"
#include "gpu/recurrent/mtp_state.cuh"

namespace goldenrule::gpu::recurrent {

/// The next token, from t on, whose state goes anywhere; `follow` if there is none.
template <class C>
__device__ __forceinline__ int next_kept(const Params& p, const ChannelTokens<C>& tokens, int t,
                                         int follow, FinalWrite final) {
  while (t < follow && !state_is_kept(p, tokens.slot[t], t, final)) ++t;
  return t;
}

template <class C>
class ChannelStates {
 public:
  using State = typename C::State;

  __device__ __forceinline__ explicit ChannelStates(const LaneTokens<C>& d) {
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
      d_[row] = split_pair_to_nearest(d[row][0], d[row][1]);
    }
  }

  /// Stores the state after token `end`, of which the keys are. Later tokens take no part, not even
  /// as a NaN times 0: they are cut out of both operands.
  __device__ __forceinline__ void store(const WarpState<C>& state, const DecayedKeys<C>& keys,
                                        const Targets<State>& to, int end, int row0,
                                        Fragment lane) const {
    const uint32_t mask =
        (2 * lane.t <= end ? 0x0000ffffu : 0u) | (2 * lane.t + 1 <= end ? 0xffff0000u : 0u);
    PairTerms d[C::kLaneRows];
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term) d[row].term[term] = d_[row].term[term] & mask;
    }
    const int own = 4 * lane.g + lane.t;
#pragma unroll
    for (int step = 0; step < C::kChannelSteps; ++step) {
      LaneStep<C> s;
      state.read(s, step, lane);
      const float4 four = *reinterpret_cast<const float4*>(&keys.decay[16 * step + 4 * lane.t]);
      const float decay[4] = {four.x, four.y, four.z, four.w};
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
          float sum[4] = {};
          multiply_terms(sum, rows, column);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int channel = 2 * pair + i % 2;
            State& x = s[2 * tile + i / 2][channel];
            round_to(x, fmaf(decay[channel], to_float(x), sum[i]));
          }
        }
      }
      WarpState<C>::store(s, to, row0, step, lane);
    }
  }

 private:
  PairTerms d_[C::kLaneRows];
};

}  // namespace goldenrule::gpu::recurrent
