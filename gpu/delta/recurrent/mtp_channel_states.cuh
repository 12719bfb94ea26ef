// SPDX-License-Identifier: Apache-2.0
//
// Stored states with one gate per key channel, each from S_0:
//
//     S_n = diag(D_n) S_0 + sum_{s<=n} (alpha(s..n] o k^_s) d_s^T
//
// The block makes the keys of a state, decayed to its end (mtp_channel_tokens.cuh), and each warp
// multiplies them by d of its rows.
#pragma once

#include "gpu/delta/recurrent/mtp_state.cuh"
#include "gpu/delta/shared/mtp_channel_products.cuh"

namespace goldenrule::gpu::recurrent {

/// The next token, from t on, whose state goes anywhere; `follow` if there is none.
template <class C>
__device__ __forceinline__ int next_kept(const Params& p, const ChannelTokens<C>& tokens, int t,
                                         int follow, FinalWrite final) {
  while (t < follow && !state_is_kept(p, tokens.slot[t], t, final)) ++t;
  return t;
}

/// `Groups`: how many times eight tokens may take part.
template <class C, int Groups = 1>
class ChannelStates {
 public:
  using State = typename C::State;

  __device__ __forceinline__ explicit ChannelStates(const LaneTokens<C> (&d)[Groups]) : d_(d) {}

  /// Stores the state after token `end`, of which the keys are.
  __device__ __forceinline__ void store(const WarpState<C>& state,
                                        const DecayedKeys<C, Groups>& keys,
                                        const Targets<State>& to, int end, int row0,
                                        Fragment lane) const {
    const Corrections<C, Groups> d = d_.until(end, lane);
#pragma unroll
    for (int step = 0; step < C::kChannelSteps; step += C::kStepsTogether) {
      LaneSteps<C> s;
      state.read(s, step, lane);
#pragma unroll
      for (int more = 0; more < C::kStepsTogether; ++more) {
        d.follow(s[more], keys, step + more, lane);
      }
      WarpState<C>::store(s, to, row0, step, lane);
    }
  }

 private:
  Corrections<C, Groups> d_;
};

}  // namespace goldenrule::gpu::recurrent
