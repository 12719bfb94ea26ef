// SPDX-License-Identifier: Apache-2.0
//
// Replay for everything that mtp_replay.cuh and mtp_channel_replay.cuh do not serve: any K to 256,
// any V, type, layout, kind of gate, and any number of pending tokens, on the fp32 pipe. The tile
// of recurrent.cuh first takes the pending tokens one by one,
//
//     S = diag(alpha) S + k d^T        alpha = e^g; no product with the state, no sum over lanes
//
// and is stored there where the row flushes; then the tokens of the call in its closed form. What
// the kernel writes of them is d, k^ and log alpha, K + V numbers a head for the K V of a state.
#pragma once

#include "gpu/delta/recurrent/draft_rows.cuh"
#include "gpu/delta/recurrent/follow_tokens.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/recurrent/prefetch.cuh"
#include "gpu/delta/shared/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::recurrent {

__device__ __forceinline__ float ring_element(const char* row, Element type, int i) {
  return from_bits(load_bits(row + i * element_size(type), type), type);
}

/// Pending tokens first..first+count-1 into k, alpha and v (as d) of the storage. Barrier outside.
template <class C>
__device__ __forceinline__ void load_pending(const Params& p, BlockPlace at,
                                             const RingCursors& cursors, int first, int count,
                                             TokenStorage<C>& to) {
  const Rings& r = p.ring;
  const bool by_channel = has_channels(p);
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < count * C::kPaddedK; i += C::kThreads) {
    const int t = i / C::kPaddedK;
    const int channel = i % C::kPaddedK;
    const int place = cursors.place(first + t);
    float k = 0.f, alpha = 0.f;
    if (channel < p.K) {
      k = ring_element(token_row(r.k, cursors.ring, place, at.h), r.k_type, channel);
      alpha = expf(ring_element(token_row(r.g, cursors.ring, place, at.hv), r.g_type,
                                by_channel ? channel : 0));
    }
    to.k[t][channel] = k;
    to.alpha[t][channel] = alpha;
  }
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < count * C::kBlockRows; i += C::kThreads) {
    const int t = i / C::kBlockRows;
    const int row = i % C::kBlockRows;
    const char* from = token_row(r.d, cursors.ring, cursors.place(first + t), at.hv);
    to.v[t][row] = at.row0 + row < p.V ? ring_element(from, r.d_type, at.row0 + row) : 0.f;
  }
}

/// The state after all pending tokens.
template <class C>
__device__ __forceinline__ void replay_pending(const Params& p, BlockPlace at, ThreadPlace thread,
                                               const RingCursors& cursors, StateTile<C>& tile,
                                               TokenStorage<C>& tokens) {
#pragma unroll 1
  for (int first = 0; first < cursors.count; first += C::kTokensPerRound) {
    const int left = cursors.count - first;
    const int count = left < C::kTokensPerRound ? left : C::kTokensPerRound;
    load_pending<C>(p, at, cursors, first, count, tokens);
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      float d[C::kTileRows];
#pragma unroll
      for (int r = 0; r < C::kTileRows; ++r) {
        d[r] = tokens.v[t][thread.warp * C::kWarpRows + C::row(r, thread.lv)];
      }
      update<C>(tile, StoredToken<C>{tokens, t, thread.lk}, d);
    }
    __syncthreads();
  }
}

/// d of the storage, where solve() left it: each warp its own rows.
template <class C>
__device__ __forceinline__ void append_corrections(const Params& p, BlockPlace at,
                                                   ThreadPlace thread, const RingCursors& cursors,
                                                   const TokenStorage<C>& tokens, int first,
                                                   int count) {
  const Rings& r = p.ring;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
  for (int i = lane; i < count * C::kWarpRows; i += kWarp) {
    const int t = i / C::kWarpRows;
    const int row = thread.warp * C::kWarpRows + i % C::kWarpRows;
    if (at.row0 + row >= p.V) continue;
    const int place = cursors.place(cursors.count + first + t);
    store_element(
        token_row(r.d, cursors.ring, place, at.hv) + (at.row0 + row) * element_size(r.d_type),
        r.d_type, tokens.v[t][row]);
  }
}

template <class C>
__device__ __forceinline__ void append_keys(const Params& p, BlockPlace at,
                                            const RingCursors& cursors,
                                            const TokenStorage<C>& tokens, int first, int count) {
  const Rings& r = p.ring;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count * C::kPaddedK; i += C::kThreads) {
    const int t = i / C::kPaddedK;
    const int channel = i % C::kPaddedK;
    if (channel >= p.K) continue;
    const int place = cursors.place(cursors.count + first + t);
    store_element(token_row(r.k, cursors.ring, place, at.h) + channel * element_size(r.k_type),
                  r.k_type, tokens.k[t][channel]);
  }
}

/// log alpha, from the gates themselves: of alpha it could not be had where that is 0.
template <class C>
__device__ __forceinline__ void append_gates(const Params& p, BlockPlace at,
                                             const RingCursors& cursors, int first, int count) {
  const Rings& r = p.ring;
  const int gates = has_channels(p) ? p.K : 1;
  const int head = p.gate_by_qk_head ? at.h : at.hv;
  const float rate =
      p.A_log != nullptr
          ? expf(ring_element(head_row(p.A_log, p.A_log_stride, head), p.A_log_type, 0))
          : 1.f;
#pragma unroll 1
  for (int t = 0; t < count; ++t) {
    char* to = token_row(r.g, cursors.ring, cursors.place(cursors.count + first + t), at.hv);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < gates; i += C::kThreads) {
      const float x =
          p.gate.data != nullptr
              ? ring_element(token_row(p.gate, at.b, at.token0 + first + t, at.hv), p.gate_type, i)
              : 0.f;
      const float bias =
          p.dt_bias != nullptr
              ? ring_element(head_row(p.dt_bias, p.dt_bias_stride, head), p.dt_bias_type, i)
              : 0.f;
      store_element(to + i * element_size(r.g_type), r.g_type, log_alpha_of(p, x, rate, bias));
    }
  }
}

template <class C>
struct ReplayStorage {
  static_assert(!C::kExact && C::kChannelGate && C::kChunks == 1, "one kernel for all calls");
  TokenStorage<C> tokens;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    replay_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(16) unsigned char shared[];
  TokenStorage<C>& tokens = reinterpret_cast<ReplayStorage<C>*>(shared)->tokens;
  const ThreadPlace thread = this_thread<C>();
  BlockPlace at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + thread.warp * C::kWarpRows;
  if (p.draft.bounds == nullptr) prefetch_first_wave<C>(p, at);
  ptx::wait_for_dependencies();
  if (p.triggers != 0) ptx::launch_dependents();

  const Span span = tokens_of_row(p, at.b);
  at.token0 = span.first;
  const int64_t start = start_slot(p, at.b, request_start_slot(p, at.b));
  const RingCursors cursors = ring_cursors(p, at.b, span.count);
  if (start == kNoSlot || cursors.ring == kNoRing) {
    write_zeros<C>(p, at, span.count);
    return;
  }
  StateTile<C> tile;
  tile.load(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, thread, p);
  replay_pending<C>(p, at, thread, cursors, tile, tokens);
  const int64_t slot = flush_slot(p, at.b, start, cursors);
  if (slot != kNoSlot) {
    tile.store(state_head<State>(p.final_state, slot, at.hv), p.final_state.outer, warp_row0,
               thread, p);
  }
  Tokens<C> prepared;
#pragma unroll 1
  for (int first = 0; first < span.count; first += C::kTokensPerRound) {
    const int left = span.count - first;
    const int count = left < C::kTokensPerRound ? left : C::kTokensPerRound;
    prepared.request(p, at, first, count, tokens);
    ptx::commit_copies();  // none: finish() counts one group
    prepared.finish(p, at, first, count, tokens);
    solve<C>(p, at, thread, tile, tokens, first, count);
    append_corrections<C>(p, at, thread, cursors, tokens, first, count);
    if (writes_keys(p, at)) append_keys<C>(p, at, cursors, tokens, first, count);
    if (writes_gates(at)) append_gates<C>(p, at, cursors, first, count);
    const int follow = first + count < span.count ? count : 0;
    follow_tokens<C>(p, at, thread, tile, tokens, first, follow, {kNoSlot, kNever});
    __syncthreads();
  }
}

}  // namespace goldenrule::gpu::recurrent
