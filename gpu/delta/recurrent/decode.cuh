// SPDX-License-Identifier: Apache-2.0
//
// Decode (T = 1) of the production shape, q and k in bf16 or f16 and aligned to four elements. A
// decode step moves 2 K V sizeof(State) bytes per head and does 7 K V flops, under one flop per
// byte: only the memory counts, and the memory is kept busy only if every tile lives for little
// more than its own latency. On an H200 that is 1,500 cycles, and a warp alone on its scheduler
// issues one instruction in three or four and stands still for twenty at a branch: addresses, norms
// and gates outlast the memory if each warp does them all. So:
//
//   - the chain slot, state comes first; the loads of the token are issued while the slot is on its
//     way. The slot comes by an asynchronous copy, because loads to registers are waited for all
//     together, and a slot must not wait for a token that comes from memory;
//   - the warps of a block prepare the token for each other, at once, and meet at one barrier while
//     the state is on its way: k^ and q^ are made by sixteen lanes, each gate by one thread;
//   - what stands behind the state is straight: products, update, store from the registers.
//
// A dependent launch whose caller vouches for states and slots (GOLDENRULE_GPU_FLAG_STATE_READY)
// takes both before it waits for the kernel in front; tokens and stores stand behind the wait in
// every case. Later waves find no kernel in front, and keep the order that overlaps slot and token.
//
// The state passes through slots of shared memory that only their thread touches.
//
// The kernel is one function of 99 lines: split, the compiler orders its instructions otherwise,
// and the times of tools/bench_gpu/README.md are those of this order.
#pragma once

#include <type_traits>

#include "gpu/delta/recurrent/decode_token.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/recurrent/prefetch.cuh"
#include "gpu/delta/shared/step.cuh"
#include "gpu/ptx/fence.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::recurrent {

/// Calls f with 0, 1, .. N - 1, each known to the compiler.
template <int N, int I = 0, class F>
__device__ __forceinline__ void for_each_chunk(F&& f) {
  if constexpr (I < N) {
    f(std::integral_constant<int, I>{});
    for_each_chunk<N, I + 1>(f);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    decode_kernel(const __grid_constant__ Params p) {
  static_assert(C::kExact, "the table gives this kernel whole tiles only");
  using State = typename C::State;
  using Map = VectorMap<C>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& storage = *reinterpret_cast<DecodeStorage<C>*>(shared);
  auto& rows = storage.rows;
  const ThreadPlace thread = this_thread<C>();
  const BlockPlace at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + thread.warp * C::kWarpRows;
  const Owner<C> owner(thread.lk);

  const bool early = p.state_ready != 0 && is_of_first_wave(p);
  int64_t start = early_start_slot<C>(p, at);
  if (start != kNoSlot && early) {
    // Copies of less than 16 bytes go through L1, which may hold the states of an earlier step.
    if constexpr (sizeof(State) * C::kVectorElements < 16) ptx::forget_cached();
    rows.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, thread);
  } else if (start != kNoSlot) {
    prefetch_states<C>(p, at, start);
  }
  ptx::wait_for_dependencies();
  if (p.triggers != 0) ptx::launch_dependents();

  if (!early) copy_start_slot(p, at.b, storage.start[threadIdx.x]);
  SharedToken<C> token(storage, thread);
  token.request(p, at);
  const char* v_row = token_row(p.v, at.b, 0, at.hv);
  LoadedElement v[C::kChunks];
#pragma unroll
  for (int c = 0; c < C::kChunks; ++c) {
    const int row = warp_row0 + C::row(c * C::kTileRows + owner.row, thread.lv);
    v[c].request(v_row + row * element_size(p.v_type), p.v_type);
  }
  if (!early) start = copied_start_slot(p, at.b, storage.start[threadIdx.x]);
  if (start == kNoSlot) {
    write_zeros<C>(p, at, p.T);
    return;
  }
  if (!early) {
    rows.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, thread);
  }
  NextWave<C> next;
  next.request(p);
  // The common case, one target which is the slot read from, is known at once.
  const bool in_place = p.disable_state_update == 0 && p.output_state_indices == nullptr &&
                        p.accepted_tokens == nullptr && p.ssm_state_indices == nullptr &&
                        p.intermediate.data == nullptr;
  FinalWrite final{start, 1};
  int64_t scatter = kNoSlot;
  bool kept = true;
  if (!in_place) {
    final = final_write(p, at.b, start, p.T);
    if (p.ssm_state_indices != nullptr && p.disable_state_update == 0) {
      scatter = ssm_slot(p, at.b, 0);
    }
    kept = state_is_kept(p, scatter, 0, final);
  }
  State* final_head =
      final.slot != kNoSlot ? state_head<State>(p.final_state, final.slot, at.hv) : nullptr;
  token.finish(p);
  next.prefetch(p);

  char* o_row = token_row(p.o, at.b, 0, at.hv);
  float qk = 0.f;
  for_each_chunk<C::kChunks>([&](auto chunk) {
    constexpr int kChunk = decltype(chunk)::value;
    constexpr int kGroup = Map::group_of(kChunk);
    rows.template wait<kChunk>();
    if (final.after == 0 && Map::ends_group(kChunk)) {
      rows.store(final_head, p.final_state.outer, warp_row0, thread, kGroup);
    }
    StateTile<C> tile;
    rows.unpack(tile, kChunk);
    if constexpr (kChunk == 0) qk = token.qk();
    const float y = product<C>(tile, token, thread.lk);
    const float own = from_k_half<C>(token.beta * (v[kChunk].get(p.v_type) - y), thread);
    if (kept) {
      float d[C::kTileRows];
      all_gather<C::kLaneStepK, C::kTileRows, Owner<C>::kHalf / 2>(d, own, thread.lk);
      update<C>(tile, token, d);
      if (StagedRows<C>::kWholeVectors && in_place) {
        rows.store_tile(tile, kChunk, final_head, p.final_state.outer, warp_row0, thread);
      } else {
        rows.pack(tile, kChunk);
        if constexpr (Map::ends_group(kChunk)) {
          store_state<C>(p, at, scatter, 0, final, [&](State* head, int outer) {
            rows.store(head, outer, warp_row0, thread, kGroup);
          });
        }
      }
    }
    if (owner.half == 1 && owner.first && p.o.data != nullptr) {
      const int row = warp_row0 + C::row(kChunk * C::kTileRows + owner.row, thread.lv);
      store_element(o_row + row * element_size(p.o_type), p.o_type, fmaf(qk, own, y));
    }
  });
}

}  // namespace goldenrule::gpu::recurrent
