// SPDX-License-Identifier: Apache-2.0
//
// The rule over the register tile of a thread, in the closed form of token_weights.cuh: one pass
// over the state per token for the products with k^ and q^, both at once; then d and o of a row
// from the triangle; then, only where a state is kept, one pass per token to follow it:
//
//     x = S_0 . k^,  y = S_0 . q^        no token waits for another
//     d_t, o_t                           T^2 operations per row, one lane per row
//     S_t = alpha_t S_{t-1} + k^_t d_t   no sum over lanes
#pragma once

#include "gpu/common/lane_sums.cuh"
#include "gpu/delta/shared/block.cuh"
#include "gpu/delta/shared/state_tile.cuh"
#include "gpu/delta/shared/tokens.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::recurrent {

/// k^, q^ and alpha of a token as a thread needs them: kRunChannels consecutive channels, from
/// element `run` of lane lk on. This source reads them from shared memory, 16 bytes at a time.
template <class C>
struct StoredToken {
  const TokenStorage<C>& tokens;
  int token, lk;

  using Run = float[C::kRunChannels];

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
      for (int i = 0; i < C::kRunChannels; ++i) x[i] = tokens.alpha[token][0];
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
  static constexpr int kHalf = kSumLanes / 2;
  static constexpr int kSharers = kHalf / C::kTileRows;  // lanes that hold the same
  static_assert(C::kTileRows <= kHalf, "a row of the tile for every lane of a half");

  int half, row;
  bool first;  // of its sharers
  __device__ explicit Owner(int lk)
      : half(lk / kHalf), row(lk % kHalf / kSharers), first(lk % kSharers == 0) {}
};

/// The products of the rows with k^ and q^, summed over lanes: this lane's, see Owner.
template <class C, class Token>
__device__ __forceinline__ float product(const StateTile<C>& tile, const Token& token, int lk) {
  float x[2 * C::kTileRows];
#pragma unroll
  for (int r = 0; r < 2 * C::kTileRows; ++r) x[r] = 0.f;
#pragma unroll
  for (int run = 0; run < C::kThreadChannels; run += C::kRunChannels) {
    float k[C::kRunChannels], q[C::kRunChannels];
    token.decayed_k(k, run);
    token.decayed_q(q, run);
#pragma unroll
    for (int i = 0; i < C::kRunChannels; ++i) {
#pragma unroll
      for (int r = 0; r < C::kTileRows; ++r) {
        x[r] = fmaf(tile.s[r][run + i], k[i], x[r]);
        x[C::kTileRows + r] = fmaf(tile.s[r][run + i], q[i], x[C::kTileRows + r]);
      }
    }
  }
  reduce_scatter<C::kLaneStepK>(x, lk);
  return x[0] * token.decay();
}

/// d of the row that this lane owns, from its own value `mine`, which counts in the half of k^.
template <class C>
__device__ __forceinline__ float from_k_half(float mine, ThreadPlace thread) {
  return __shfl_sync(kAllLanes, mine, C::lane_of(thread.lk % Owner<C>::kHalf, thread.lv));
}

/// S_r = alpha S_r + k^ d_r.
template <class C, class Token>
__device__ __forceinline__ void update(StateTile<C>& tile, const Token& token,
                                       const float (&d)[C::kTileRows]) {
#pragma unroll
  for (int run = 0; run < C::kThreadChannels; run += C::kRunChannels) {
    float k[C::kRunChannels], alpha[C::kRunChannels];
    token.k(k, run);
    token.alpha(alpha, run);
#pragma unroll
    for (int i = 0; i < C::kRunChannels; ++i) {
#pragma unroll
      for (int r = 0; r < C::kTileRows; ++r) {
        float& s = tile.s[r][run + i];
        s = fmaf(k[i], d[r], s * alpha[i]);
      }
    }
  }
}

/// d_t and o_t of all tokens of the storage; d_t replaces v_t.
template <class C, class P>
__device__ __forceinline__ void solve(const P& p, BlockPlace at, ThreadPlace thread,
                                      const StateTile<C>& tile, TokenStorage<C>& tokens, int first,
                                      int count) {
  const Owner<C> owner(thread.lk);
  const int row = thread.warp * C::kWarpRows + C::row(owner.row, thread.lv);
  float* own = &tokens.product[0][threadIdx.x];  // [t * kThreads]
  // Two tokens at a time, the second perhaps none: their shuffles overlap.
#pragma unroll 1
  for (int t = 0; t < count; t += 2) {
    const float x = product<C>(tile, StoredToken<C>{tokens, t, thread.lk}, thread.lk);
    const float y = product<C>(tile, StoredToken<C>{tokens, t + 1, thread.lk}, thread.lk);
    own[t * C::kThreads] = x;
    own[(t + 1) * C::kThreads] = y;
  }
  float y[C::kTokensPerRound], d[C::kTokensPerRound];
  ptx::define_off_90(d);
#pragma unroll
  for (int t = 0; t < C::kTokensPerRound; ++t) y[t] = own[t * C::kThreads];
#pragma unroll
  for (int j = 0; j < C::kTokensPerRound; ++j) {
    if (j >= count) break;
    d[j] = from_k_half<C>(tokens.beta[j] * (tokens.v[j][row] - y[j]), thread);
    const float4* weights = reinterpret_cast<const float4*>(tokens.weight[j][owner.half]);
#pragma unroll
    for (int t = j / 4 * 4; t < C::kTokensPerRound; t += 4) {
      const float4 w = weights[t / 4];
      if (t >= j) y[t] = fmaf(w.x, d[j], y[t]);
      if (t + 1 >= j) y[t + 1] = fmaf(w.y, d[j], y[t + 1]);
      if (t + 2 >= j) y[t + 2] = fmaf(w.z, d[j], y[t + 2]);
      if (t + 3 >= j) y[t + 3] = fmaf(w.w, d[j], y[t + 3]);
    }
  }
  __syncwarp();  // all lanes have read v
  const bool stores_o =
      owner.half == 1 && owner.first && (C::kExact || at.row0 + row < p.V) && p.o.data != nullptr;
#pragma unroll
  for (int t = 0; t < C::kTokensPerRound; ++t) {
    if (t >= count) break;
    if (owner.half == 0 && owner.first) tokens.v[t][row] = d[t];
  }
  if (stores_o) {
    char* to =
        token_row(p.o, at.b, at.token0 + first, at.hv) + (at.row0 + row) * element_size(p.o_type);
    with_type(p.o_type, [&](auto type) {
#pragma unroll
      for (int t = 0; t < C::kTokensPerRound; ++t) {
        if (t >= count) break;
        store_element(to, decltype(type)::kType, y[t]);
        to += p.o.token;
      }
    });
  }
  __syncwarp();
}

}  // namespace goldenrule::gpu::recurrent
