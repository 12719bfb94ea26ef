// SPDX-License-Identifier: Apache-2.0
//
// Decode and MTP of GDN and KDA, one block a tile: one head of one row of the batch, kRows value
// rows of its state, all tokens. Two numbers for a decode step: it moves 2 K V sizeof(State) bytes
// a head and does 7 K V flops, under one flop a byte: only the memory counts. An MTP step moves the
// state once (read, and one write if it is kept) for T times the flops: from T = 4 on the fp32 pipe
// counts too. See gpu/README.md for the figures.
//
// Order of work: the loads of all tokens are requested, then those of the state; the tokens are
// prepared while the state flies; then they run over registers.
#pragma once

#include "gpu/kernels/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu {

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    recurrent_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  __shared__ TokenStorage<C> tokens;

  const Lane lane = this_lane<C>();
  const Place at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + lane.warp * C::kWarpRows;

  ptx::wait_for_dependencies();

  const uint2 start_bits = request_start_slot(p, at.b);
  Tokens<C> prepared;
  prepared.request(p, at, 0, p.T < C::kTC ? p.T : C::kTC, tokens);
  const int64_t start = start_slot(p, at.b, start_bits);
  if (start == kNoSlot) {
    write_zeros<C>(p, at);
    ptx::wait_for_copies();
    return;
  }
  static_assert(C::kChunks == 1, "one register tile through all tokens");
  PackedRows<C> rows;
  rows.load(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane, p);
  const FinalWrite final = final_write(p, at.b, start);

  prepared.finish(p, at, 0, p.T < C::kTC ? p.T : C::kTC, tokens);
  if (final.after == 0) {
    rows.store(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer, warp_row0,
               lane, p);
  }
  StateTile<C> tile;
  tile.unpack(rows, 0);

  for (int first = 0; first < p.T; first += C::kTC) {
    const int count = p.T - first < C::kTC ? p.T - first : C::kTC;
    if (first > 0) {
      __syncthreads();
      prepared.request(p, at, first, count, tokens);
      prepared.finish(p, at, first, count, tokens);
    }
#pragma unroll 1
    for (int token = 0; token < count; ++token) {
      if (first + token == p.T - 1) ptx::launch_dependents();
      run_token<C>(p, at, lane, tile, tokens, token, first + token, final);
    }
  }
}

}  // namespace goldenrule::gpu
