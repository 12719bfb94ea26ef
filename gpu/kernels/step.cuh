// SPDX-License-Identifier: Apache-2.0
//
// One token over the register tile of a thread: what both kernels, one block a tile and streaming,
// have in common. Per value row:
//
//     S' = alpha S,  p = S' . k^         one pass
//     d  = beta (v - p)
//     S  = S' + k^ d,  o = S . q^        one pass: o reads the updated state, as the rule says
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
  __device__ __forceinline__ void q(Run& x, int run) const { read(x, tokens.q[token], run); }
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
    const float* from = row + C::channel(run, lk);
#pragma unroll
    for (int i = 0; i < C::kRun; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      x[i] = four.x;
      x[i + 1] = four.y;
      x[i + 2] = four.z;
      x[i + 3] = four.w;
    }
  }
};

/// p[r] = this lane's part of S'_r . k^, and the state decays.
template <class C, class Token>
__device__ __forceinline__ void decay_and_predict(StateTile<C>& tile, const Token& token,
                                                  float (&p)[C::kR]) {
#pragma unroll
  for (int r = 0; r < C::kR; ++r) p[r] = 0.f;
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
        s *= alpha[i];
        p[r] = fmaf(s, k[i], p[r]);
      }
    }
  }
}

/// S_r += k^ d_r, and o[r] = this lane's part of S_r . q^.
template <class C, class Token>
__device__ __forceinline__ void update_and_read(StateTile<C>& tile, const Token& token,
                                                const float (&d)[C::kR], float (&o)[C::kR]) {
#pragma unroll
  for (int r = 0; r < C::kR; ++r) o[r] = 0.f;
#pragma unroll
  for (int run = 0; run < C::kE; run += C::kRun) {
    float k[C::kRun], q[C::kRun];
    token.k(k, run);
    token.q(q, run);
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) {
#pragma unroll
      for (int r = 0; r < C::kR; ++r) {
        float& s = tile.s[r][run + i];
        s = fmaf(k[i], d[r], s);
        o[r] = fmaf(s, q[i], o[r]);
      }
    }
  }
}

/// o = 0 for all tokens of the block's rows.
template <class C>
__device__ __forceinline__ void write_zeros(const Params& p, Place at) {
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

enum Target : int { kIntermediate, kScatter, kFinal, kTargets };

/// Whether the state after token t goes anywhere.
__device__ __forceinline__ bool state_is_kept(const Params& p, int64_t scatter_slot, int t,
                                              FinalWrite final) {
  return p.intermediate.data != nullptr || scatter_slot != kNoSlot || final.after == t + 1;
}

/// Writes the state after token t, packed rows or a tile, wherever it has to go. One copy of the
/// store code for all targets.
template <class C, class Rows>
__device__ __forceinline__ void store_state(const Params& p, Place at, Lane lane, int warp_row0,
                                            const Rows& rows, int64_t scatter_slot, int t,
                                            FinalWrite final) {
  using State = typename C::State;
#pragma unroll 1
  for (int target = 0; target < kTargets; ++target) {
    State* to = nullptr;
    int outer = p.final_state.outer;
    if (target == kIntermediate && p.intermediate.data != nullptr) {
      to = state_head<State>(p.intermediate, at.b, at.hv) + t * p.intermediate_token;
      outer = p.intermediate.outer;
    } else if (target == kScatter && scatter_slot != kNoSlot) {
      to = state_head<State>(p.final_state, scatter_slot, at.hv);
    } else if (target == kFinal && final.after == t + 1) {
      to = state_head<State>(p.final_state, final.slot, at.hv);
    }
    if (to != nullptr) rows.store(to, outer, warp_row0, lane, p);
  }
}

/// Token t = number `token` of the storage.
template <class C>
__device__ __forceinline__ void run_token(const Params& p, Place at, Lane lane, StateTile<C>& tile,
                                          const TokenStorage<C>& tokens, int token, int t,
                                          FinalWrite final) {
  const int row_of_warp = lane.warp * C::kWarpRows;
  const int row = row_of_warp + C::row(owned_row<C::kR>(lane.lk), lane.lv);
  const StoredToken<C> source{tokens, token, lane.lk};
  float x[C::kR], d[C::kR];
  decay_and_predict<C>(tile, source, x);
  reduce_scatter<C::kLaneStepK>(x, lane.lk);
  const float own = tokens.beta[token] * (tokens.v[token][row] - x[0]);
  all_gather<C::kLaneStepK>(d, own, lane.lk);
  update_and_read<C>(tile, source, d, x);
  if (state_is_kept(p, tokens.slot[token], t, final)) {
    store_state<C>(p, at, lane, at.row0 + row_of_warp, tile, tokens.slot[token], t, final);
  }
  reduce_scatter<C::kLaneStepK>(x, lane.lk);
  if (stores_row<C::kR>(lane.lk) && (C::kExact || at.row0 + row < p.V)) {
    store_element(token_row(p.o, at.b, t, at.hv) + (at.row0 + row) * element_size(p.o_type),
                  p.o_type, x[0]);
  }
}

}  // namespace goldenrule::gpu
