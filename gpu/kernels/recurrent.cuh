// SPDX-License-Identifier: Apache-2.0
//
// Decode and MTP of GDN and KDA. One block: one head of one row of the batch, kRows value rows of
// its state, all tokens. Two numbers for a decode step: it moves 2 * K * V * sizeof(State) bytes a
// head and does 7 K V flops, under one flop a byte: only the memory counts. An MTP step moves the
// state once (read, and one write if it is kept) for T steps of the same flops: from T = 4 on the
// fp32 pipe counts too. See gpu/README.md for the figures.
//
// Order of work: the loads of all tokens are requested, then those of the state; the tokens are
// prepared while the state flies; then they run over registers. Per token and row:
//
//     S' = alpha S,  p = S' . k^         one pass
//     d  = beta (v - p)
//     S  = S' + k^ d,  o = S . q^        one pass: o reads the updated state, as the rule says
#pragma once

#include "gpu/kernels/lane_sums.cuh"
#include "gpu/kernels/state_tile.cuh"
#include "gpu/kernels/tokens.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu {

template <class State>
__device__ __forceinline__ State* state_head(const StateView& view, int64_t block, int hv) {
  return static_cast<State*>(view.data) + block * view.block + static_cast<int64_t>(hv) * view.head;
}

/// kRun consecutive channels from shared memory, in 16-byte reads.
template <class C>
__device__ __forceinline__ void read_run(float (&x)[C::kRun], const float* from) {
#pragma unroll
  for (int i = 0; i < C::kRun; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    x[i] = four.x;
    x[i + 1] = four.y;
    x[i + 2] = four.z;
    x[i + 3] = four.w;
  }
}

/// p[r] = this lane's part of S'_r . k^, and the state decays.
template <class C>
__device__ __forceinline__ void decay_and_predict(StateTile<C>& tile, const TokenStorage<C>& tokens,
                                                  int token, int lk, float (&p)[C::kR]) {
#pragma unroll
  for (int r = 0; r < C::kR; ++r) p[r] = 0.f;
#pragma unroll
  for (int run = 0; run < C::kE; run += C::kRun) {
    const int channel = C::channel(run, lk);
    float k[C::kRun], alpha[C::kRun];
    read_run<C>(k, &tokens.k[token][channel]);
    if constexpr (C::kChannelGate) {
      read_run<C>(alpha, &tokens.alpha[token][channel]);
    } else {
#pragma unroll
      for (int i = 0; i < C::kRun; ++i) alpha[i] = tokens.alpha[token][0];
    }
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
template <class C>
__device__ __forceinline__ void update_and_read(StateTile<C>& tile, const TokenStorage<C>& tokens,
                                                int token, int lk, const float (&d)[C::kR],
                                                float (&o)[C::kR]) {
#pragma unroll
  for (int r = 0; r < C::kR; ++r) o[r] = 0.f;
#pragma unroll
  for (int run = 0; run < C::kE; run += C::kRun) {
    const int channel = C::channel(run, lk);
    float k[C::kRun], q[C::kRun];
    read_run<C>(k, &tokens.k[token][channel]);
    read_run<C>(q, &tokens.q[token][channel]);
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
      store_element(p.o.data, p.o_type, token_offset(p.o, at.b, i / C::kRows, at.hv) + row, 0.f);
    }
  }
}

enum Target : int { kIntermediate, kScatter, kFinal, kTargets };

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    recurrent_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  __shared__ TokenStorage<C> tokens;

  const Lane lane = this_lane();
  const int block = static_cast<int>(blockIdx.x);
  const int head = p.by_tiles.quotient(block);
  const int b = p.by_heads.quotient(head);
  const int hv = head - b * p.HV;
  const int in_group = p.by_group.quotient(hv);
  const Place at{.b = b,
                 .hv = hv,
                 .h = p.tiled_heads ? hv - in_group * p.group : in_group,
                 .row0 = (block - head * p.tiles) * C::kRows};
  const int row0 = at.row0;
  const int warp_row0 = row0 + lane.warp * kLanesV * C::kR;

  ptx::launch_dependents();
  ptx::wait_for_dependencies();

  const int first_count = p.T < C::kTC ? p.T : C::kTC;
  Tokens<C> prepared;
  prepared.request(p, at, 0, first_count, tokens);
  const int64_t start = start_slot(p, b);
  if (start == kNoSlot) {
    write_zeros<C>(p, at);
    ptx::wait_for_copies();
    return;
  }
  StateTile<C> tile;
  tile.load(state_head<State>(p.state, start, hv), p.state.outer, warp_row0, lane, p);
  const FinalWrite final = final_write(p, b, start);
  if (final.after == 0) {
    tile.store(state_head<State>(p.final_state, final.slot, hv), p.final_state.outer, warp_row0,
               lane, p);
  }

  const int owned_in_block =
      lane.warp * kLanesV * C::kR + C::row(owned_row<C::kR>(lane.lk), lane.lv);
  const bool writes_o = stores_row<C::kR>(lane.lk) && (C::kExact || row0 + owned_in_block < p.V);

  const auto run_token = [&](int token, int t) {
    float x[C::kR], d[C::kR];
    decay_and_predict<C>(tile, tokens, token, lane.lk, x);
    reduce_scatter<C::kR>(x, lane.lk);
    all_gather<C::kR>(d, tokens.beta[token] * (tokens.v[token][owned_in_block] - x[0]), lane.lk);
    update_and_read<C>(tile, tokens, token, lane.lk, d, x);
    // One copy of the store code for the three places where the state after a token can go.
#pragma unroll 1
    for (int target = 0; target < kTargets; ++target) {
      State* to = nullptr;
      int outer = p.final_state.outer;
      if (target == kIntermediate && p.intermediate.data != nullptr) {
        to = static_cast<State*>(p.intermediate.data) + b * p.intermediate.block +
             t * p.intermediate_token + hv * p.intermediate.head;
        outer = p.intermediate.outer;
      } else if (target == kScatter && tokens.slot[token] != kNoSlot) {
        to = state_head<State>(p.final_state, tokens.slot[token], hv);
      } else if (target == kFinal && final.after == t + 1) {
        to = state_head<State>(p.final_state, final.slot, hv);
      }
      if (to != nullptr) tile.store(to, outer, warp_row0, lane, p);
    }
    reduce_scatter<C::kR>(x, lane.lk);
    if (writes_o) {
      store_element(p.o.data, p.o_type, token_offset(p.o, b, t, hv) + row0 + owned_in_block, x[0]);
    }
  };

  if constexpr (C::kTC == 1) {  // the table gives these kernels T = 1 only
    prepared.finish(p, at, 0, 1, tokens);
    run_token(0, 0);
  } else {
    for (int first = 0; first < p.T; first += C::kTC) {
      const int count = p.T - first < C::kTC ? p.T - first : C::kTC;
      if (first > 0) {
        __syncthreads();
        prepared.request(p, at, first, count, tokens);
      }
      prepared.finish(p, at, first, count, tokens);
#pragma unroll 1
      for (int token = 0; token < count; ++token) run_token(token, first + token);
    }
  }
}

}  // namespace goldenrule::gpu
