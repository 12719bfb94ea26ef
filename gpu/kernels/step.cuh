// SPDX-License-Identifier: Apache-2.0
//
// The rule over the register tile of a thread, in the closed form of relations.cuh: one pass over
// the state a token for the products with k^ and q^, both at once; then d and o of a row from the
// triangle; then, only where a state is kept, one pass a token to follow it:
//
//     x = S_0 . k^,  y = S_0 . q^        no token waits for another
//     d_t, o_t                           T^2 operations a row, one lane a row
//     S_t = alpha_t S_{t-1} + k^_t d_t   no sum over lanes
#pragma once

#include "gpu/kernels/lane_sums.cuh"
#include "gpu/kernels/state_tile.cuh"
#include "gpu/kernels/tokens.cuh"

namespace goldenrule::gpu {

template <class State>
__device__ __forceinline__ State* state_head(const StateView& view, int64_t block, int hv) {
  return static_cast<State*>(view.data) + block * view.block + static_cast<int64_t>(hv) * view.head;
}

/// k^, q^ and alpha of a token as a thread needs them: kRun consecutive channels, from element
/// `run` of lane lk on. This source reads them from shared memory, 16 bytes at a time.
template <class C>
struct StoredToken {
  const TokenStorage<C>& tokens;
  int token, lk;

  using Run = float[C::kRun];

  __device__ __forceinline__ void k(Run& x, int run) const { read(x, tokens.k[token], run); }
  /// Decayed from the start by channel; where the gate is one per head, decay() is the factor.
  __device__ __forceinline__ void decayed_k(Run& x, int run) const {
    read(x, C::kChannelGate ? tokens.decayed_k[token] : tokens.k[token], run);
  }
  __device__ __forceinline__ void decayed_q(Run& x, int run) const {
    read(x, tokens.q[token], run);
  }
  __device__ __forceinline__ float decay() const { return tokens.decay[token]; }
  __device__ __forceinline__ void alpha(Run& x, int run) const {
    if constexpr (C::kChannelGate) {
      read(x, tokens.alpha[token], run);
    } else {
#pragma unroll
      for (int i = 0; i < C::kRun; ++i) x[i] = tokens.alpha[token][0];
    }
  }

 private:
  __device__ __forceinline__ void read(Run& x, const float* row, int run) const {
    read_fours(x, row + C::channel(run, lk));
  }
};

/// Who holds what once the products with the state are summed over lanes: lanes lk < 4 those with
/// k^, the others those with q^, each of one row of the register tile.
template <class C>
struct Owner {
  static constexpr int kHalf = kLanesK / 2;
  static constexpr int kSharers = kHalf / C::kR;  // lanes that hold the same
  static_assert(C::kR <= kHalf, "a row of the tile for every lane of a half");

  int half, row;
  bool first;  // of its sharers
  __device__ explicit Owner(int lk)
      : half(lk / kHalf), row(lk % kHalf / kSharers), first(lk % kSharers == 0) {}
};

/// The products of the rows with k^ and q^, summed over lanes: this lane's, see Owner.
template <class C, class Token>
__device__ __forceinline__ float product(const StateTile<C>& tile, const Token& token, int lk) {
  float x[2 * C::kR];
#pragma unroll
  for (int r = 0; r < 2 * C::kR; ++r) x[r] = 0.f;
#pragma unroll
  for (int run = 0; run < C::kE; run += C::kRun) {
    float k[C::kRun], q[C::kRun];
    token.decayed_k(k, run);
    token.decayed_q(q, run);
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) {
#pragma unroll
      for (int r = 0; r < C::kR; ++r) {
        x[r] = fmaf(tile.s[r][run + i], k[i], x[r]);
        x[C::kR + r] = fmaf(tile.s[r][run + i], q[i], x[C::kR + r]);
      }
    }
  }
  reduce_scatter<C::kLaneStepK>(x, lk);
  return x[0] * token.decay();
}

/// d of the row that this lane owns, from its own value `mine`, which counts in the half of k^.
template <class C>
__device__ __forceinline__ float from_k_half(float mine, Lane lane) {
  return __shfl_sync(kAllLanes, mine, C::lane_of(lane.lk % Owner<C>::kHalf, lane.lv));
}

/// S_r = alpha S_r + k^ d_r.
template <class C, class Token>
__device__ __forceinline__ void update(StateTile<C>& tile, const Token& token,
                                       const float (&d)[C::kR]) {
#pragma unroll
  for (int run = 0; run < C::kE; run += C::kRun) {
    float k[C::kRun], alpha[C::kRun];
    token.k(k, run);
    token.alpha(alpha, run);
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) {
#pragma unroll
      for (int r = 0; r < C::kR; ++r) {
        float& s = tile.s[r][run + i];
        s = fmaf(k[i], d[r], s * alpha[i]);
      }
    }
  }
}

/// o = 0 for all tokens of the block's rows.
template <class C>
__device__ __forceinline__ void write_zeros(const Params& p, Place at) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < p.T * C::kRows; i += C::kThreads) {
    const int row = at.row0 + i % C::kRows;
    if (C::kExact || row < p.V) {
      store_element(token_row(p.o, at.b, i / C::kRows, at.hv) + row * element_size(p.o_type),
                    p.o_type, 0.f);
    }
  }
}

/// The block of tile number `tile`, counted over rows of the batch, heads and rows of value.
template <class C>
__device__ __forceinline__ Place place_of(const Params& p, int tile) {
  const int head = p.by_tiles.quotient(tile);
  const int b = p.by_heads.quotient(head);
  const int hv = head - b * p.HV;
  const int in_group = p.by_group.quotient(hv);
  return {.b = b,
          .hv = hv,
          .h = p.tiled_heads ? hv - in_group * p.group : in_group,
          .row0 = (tile - head * p.tiles) * C::kRows};
}

/// Whether the state after token t goes anywhere.
__device__ __forceinline__ bool state_is_kept(const Params& p, int64_t scatter_slot, int t,
                                              FinalWrite final) {
  return p.intermediate.data != nullptr || scatter_slot != kNoSlot || final.after == t + 1;
}

/// Where the state after token t goes: beside an intermediate state at most one other.
template <class State>
struct Targets {
  State* head[2] = {};  // nullptr: none
  int outer[2];
};

template <class State>
__device__ __forceinline__ Targets<State> targets_of(const Params& p, Place at,
                                                     int64_t scatter_slot, int t,
                                                     FinalWrite final) {
  Targets<State> to;
  to.outer[0] = p.intermediate.outer;
  to.outer[1] = p.final_state.outer;
  if (p.intermediate.data != nullptr) {
    to.head[0] = state_head<State>(p.intermediate, at.b, at.hv) + t * p.intermediate_token;
  }
  const int64_t slot = scatter_slot != kNoSlot ? scatter_slot : final.slot;
  if (scatter_slot != kNoSlot || final.after == t + 1) {
    to.head[1] = state_head<State>(p.final_state, slot, at.hv);
  }
  return to;
}

/// Calls store(head, outer) for each target: one copy of the store code for all of them.
template <class C, class Store>
__device__ __forceinline__ void store_state(const Params& p, Place at, int64_t scatter_slot, int t,
                                            FinalWrite final, Store&& store) {
  const auto to = targets_of<typename C::State>(p, at, scatter_slot, t, final);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    if (to.head[i] != nullptr) store(to.head[i], to.outer[i]);
  }
}

/// d_t and o_t of all tokens of the storage; d_t replaces v_t.
template <class C>
__device__ __forceinline__ void solve(const Params& p, Place at, Lane lane,
                                      const StateTile<C>& tile, TokenStorage<C>& tokens, int first,
                                      int count) {
  const Owner<C> owner(lane.lk);
  const int row = lane.warp * C::kWarpRows + C::row(owner.row, lane.lv);
  float* own = &tokens.product[0][threadIdx.x];  // [t * kThreads]
  // Two tokens at a time, the second perhaps none: their shuffles overlap.
#pragma unroll 1
  for (int t = 0; t < count; t += 2) {
    const float x = product<C>(tile, StoredToken<C>{tokens, t, lane.lk}, lane.lk);
    const float y = product<C>(tile, StoredToken<C>{tokens, t + 1, lane.lk}, lane.lk);
    own[t * C::kThreads] = x;
    own[(t + 1) * C::kThreads] = y;
  }
  float y[C::kTC], d[C::kTC];
#pragma unroll
  for (int t = 0; t < C::kTC; ++t) y[t] = own[t * C::kThreads];
#pragma unroll
  for (int j = 0; j < C::kTC; ++j) {
    if (j >= count) break;
    d[j] = from_k_half<C>(tokens.beta[j] * (tokens.v[j][row] - y[j]), lane);
    const float4* weights = reinterpret_cast<const float4*>(tokens.weight[j][owner.half]);
#pragma unroll
    for (int t = j / 4 * 4; t < C::kTC; t += 4) {
      const float4 w = weights[t / 4];
      if (t >= j) y[t] = fmaf(w.x, d[j], y[t]);
      if (t + 1 >= j) y[t + 1] = fmaf(w.y, d[j], y[t + 1]);
      if (t + 2 >= j) y[t + 2] = fmaf(w.z, d[j], y[t + 2]);
      if (t + 3 >= j) y[t + 3] = fmaf(w.w, d[j], y[t + 3]);
    }
  }
  __syncwarp();  // all lanes have read v
  const bool stores_o = owner.half == 1 && owner.first && (C::kExact || at.row0 + row < p.V);
#pragma unroll
  for (int t = 0; t < C::kTC; ++t) {
    if (t >= count) break;
    if (owner.half == 0 && owner.first) tokens.v[t][row] = d[t];
  }
  if (stores_o) {
    char* to = token_row(p.o, at.b, first, at.hv) + (at.row0 + row) * element_size(p.o_type);
    with_type(p.o_type, [&](auto type) {
#pragma unroll
      for (int t = 0; t < C::kTC; ++t) {
        if (t >= count) break;
        store_element(to, decltype(type)::kType, y[t]);
        to += p.o.token;
      }
    });
  }
  __syncwarp();
}

/// How many tokens of the storage the state must follow: up to the last that is kept or carried on.
template <class C>
__device__ __forceinline__ int tokens_to_follow(const Params& p, int first, int count,
                                                FinalWrite final) {
  const bool scatters = p.ssm_state_indices != nullptr && p.disable_state_update == 0;
  if (p.intermediate.data != nullptr || scatters || first + count < p.T) return count;
  return final.after > first ? final.after - first : 0;
}

/// The state after each of the first `follow` tokens, written where it goes.
template <class C>
__device__ __forceinline__ void follow_tokens(const Params& p, Place at, Lane lane,
                                              StateTile<C>& tile, const TokenStorage<C>& tokens,
                                              int first, int follow, FinalWrite final) {
  const int row_of_warp = lane.warp * C::kWarpRows;
#pragma unroll 1
  for (int t = 0; t < follow; ++t) {
    float d[C::kR];
#pragma unroll
    for (int r = 0; r < C::kR; ++r) d[r] = tokens.v[t][row_of_warp + C::row(r, lane.lv)];
    update<C>(tile, StoredToken<C>{tokens, t, lane.lk}, d);
    const int64_t slot = tokens.slot[t];
    if (state_is_kept(p, slot, first + t, final)) {
      store_state<C>(p, at, slot, first + t, final, [&](auto* head, int outer) {
        tile.store(head, outer, at.row0 + row_of_warp, lane, p);
      });
    }
  }
}

}  // namespace goldenrule::gpu
