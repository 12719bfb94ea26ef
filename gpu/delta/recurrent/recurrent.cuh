// SPDX-License-Identifier: Apache-2.0
//
// Decode and MTP of GDN and KDA, one block per tile: one head of one row of the batch, kBlockRows
// value rows of its state, all tokens. Two numbers for a decode step: it moves 2 K V sizeof(State)
// bytes per head and does 7 K V flops, under one flop per byte: only the memory counts. An MTP step
// moves the state once (read, and one write if it is kept) for T times the flops: from T = 4 on the
// fp32 pipe and the preparation of the tokens count too. See tools/bench_gpu/README.md for the
// figures.
//
// Order of work: the loads of all tokens are requested, then those of the state; the tokens are
// prepared while the state flies; then they run over registers.
#pragma once

#include <type_traits>

#include "gpu/delta/recurrent/follow_tokens.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/recurrent/prefetch.cuh"
#include "gpu/delta/recurrent/staged_rows.cuh"
#include "gpu/delta/shared/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
struct RecurrentStorage {
  static_assert(C::kChunks == 1, "one register tile through all tokens");
  struct None {};
  TokenStorage<C> tokens;
  std::conditional_t<C::kExact, StagedRows<C>, None> rows;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    recurrent_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& storage = *reinterpret_cast<RecurrentStorage<C>*>(shared);
  TokenStorage<C>& tokens = storage.tokens;
  const ThreadPlace thread = this_thread<C>();
  const BlockPlace at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + thread.warp * C::kWarpRows;
  prefetch_first_wave<C>(p, at);
  ptx::wait_for_dependencies();
  if (p.triggers != 0) ptx::launch_dependents();

  const uint2 start_bits = request_start_slot(p, at.b);
  Tokens<C> prepared;
  StateTile<C> tile;
  FinalWrite final{kNoSlot, kNever};
  NextWave<C> next;
  int first = 0;
  // One copy of the code that prepares tokens: the first round also fetches the state.
#pragma unroll 1
  do {
    const int count = p.T - first < C::kTokensPerRound ? p.T - first : C::kTokensPerRound;
    prepared.request(p, at, first, count, tokens);
    if (first == 0) {
      const int64_t start = start_slot(p, at.b, start_bits);
      if (start == kNoSlot) {
        write_zeros<C>(p, at, p.T);
        ptx::wait_for_copies();
        return;
      }
      const State* head = state_head<State>(p.state, start, at.hv);
      if constexpr (C::kExact) {
        storage.rows.request(head, p.state.outer, warp_row0, thread);
      } else {
        tile.load(head, p.state.outer, warp_row0, thread, p);
      }
      next.request(p);
      final = final_write(p, at.b, start, p.T);
    }
    if (first > 0 || !C::kExact) ptx::commit_copies();  // none: finish() counts one group
    prepared.finish(p, at, first, count, tokens);
    if (first == 0) next.prefetch(p);
    if (first == 0) {
      if constexpr (C::kExact) {
        storage.rows.template wait<0>();
        storage.rows.unpack(tile, 0);
      }
      if (final.after == 0) {
        tile.store(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer,
                   warp_row0, thread, p);
      }
    }
    solve<C>(p, at, thread, tile, tokens, first, count);
    const int follow = tokens_to_follow<C>(p, first, count, p.T, final);
    follow_tokens<C>(p, at, thread, tile, tokens, first, follow, final);
    first += C::kTokensPerRound;
    __syncthreads();
  } while (first < p.T);
}

}  // namespace goldenrule::gpu::recurrent
