// SPDX-License-Identifier: Apache-2.0
//
// The prefill of every call that no tuned kernel serves: any K and V, strides, types, alignment and
// device. It is the tile of the recurrent kernels walking the packed tokens, eight at a time: one
// block per tile, a head of one sequence and kBlockRows of its value rows, fp32 throughout, so its
// results keep the contracts of the recurrent kernels. The fp32 pipe does 7 K V flops a token and
// head where the tensor cores do a chunk at a time, and a block waits for each round of tokens:
// tens of times slower than memory allows, and correct.
//
// One arithmetic for both layouts and types of the state, which is converted where it is loaded and
// stored, so there is one kernel for each K rounded up. Rounds are counted from the start of the
// sequence; a checkpoint is stored on the way and moves no round, so it changes no bit.
#pragma once

#include "gpu/delta/prefill/begin.cuh"
#include "gpu/delta/prefill/checkpoints.cuh"
#include "gpu/delta/prefill/general_state.cuh"
#include "gpu/delta/prefill/padding.cuh"
#include "gpu/delta/shared/step.cuh"

namespace goldenrule::gpu::prefill {

using recurrent::StateTile;
using recurrent::ThreadPlace;
using recurrent::TokenStorage;

/// The next tokens of a sequence, at most a round; returns how many. o is written.
template <class C>
__device__ __forceinline__ int next_round(const Params& p, BlockPlace at, ThreadPlace thread,
                                          const StateTile<C>& tile, TokenStorage<C>& tokens,
                                          int first, int left) {
  const int count = left < C::kTokensPerRound ? left : C::kTokensPerRound;
  recurrent::Tokens<C> prepared;
  __syncthreads();  // all warps are through with the tokens before
  prepared.request(p, at, first, count, tokens);
  ptx::commit_copies();  // none: finish() waits for all groups but the latest
  prepared.finish(p, at, first, count, tokens);
  recurrent::solve<C>(p, at, thread, tile, tokens, first, count);
  return count;
}

/// The state after token t of the round.
template <class C>
__device__ __forceinline__ void follow_token(StateTile<C>& tile, const TokenStorage<C>& tokens,
                                             ThreadPlace thread, int t) {
  float d[C::kTileRows];
#pragma unroll
  for (int r = 0; r < C::kTileRows; ++r) {
    d[r] = tokens.v[t][thread.warp * C::kWarpRows + C::row(r, thread.lv)];
  }
  recurrent::update<C>(tile, recurrent::StoredToken<C>{tokens, t, thread.lk}, d);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    general_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& tokens = *reinterpret_cast<TokenStorage<C>*>(shared);
  const ThreadPlace thread = recurrent::this_thread<C>();
  const auto [at, n] = begin_sequence<C>(p);
  const StatePlace place{at.hv, at.row0 + thread.warp * C::kWarpRows, thread};
  const Span span = tokens_of(p, n);
  const int64_t start = start_slot(p, n);
  if (start == kNoSlot) {
    write_zeros<C>(p, at, span);
    return;
  }
  int64_t final = final_slot(p, n, start);
  CheckpointWalk walk(p, n, span.count);
  StateTile<C> tile;
  load_state(p, tile, place, p.state, start);
  int round = 0, t = 0;  // tokens of the round, and how many of them the state has followed
#pragma unroll 1
  for (int done = 0;; ++done) {
    store_due(p, walk, final, done, span.count, [&](const StateView& view, int64_t block) {
      store_state(p, tile, place, view, block);
    });
    if (done == span.count) return;
    if (t == round) {
      round = next_round(p, at, thread, tile, tokens, span.first + done, span.count - done);
      t = 0;
    }
    follow_token(tile, tokens, thread, t++);
  }
}

}  // namespace goldenrule::gpu::prefill
