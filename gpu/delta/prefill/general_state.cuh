// SPDX-License-Identifier: Apache-2.0
//
// The register tile of the general kernel from and to memory, element by element: any type and
// layout of the states, any strides. What lies outside K x V is 0 and is not stored.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/common/vectors.cuh"
#include "gpu/delta/prefill/params.hpp"
#include "gpu/delta/shared/state_tile.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::prefill {

/// Whose part of which head: the first value row of the warp, and the thread.
struct StatePlace {
  int hv, row0;
  recurrent::ThreadPlace thread;
};

/// Calls f(element of the tile, its address) for the elements that exist, and outside(element) for
/// the others.
template <class State, class C, class Tile, class F, class Outside>
__device__ __forceinline__ void each_element(const Params& p, Tile& tile, const StatePlace& place,
                                             const StateView& view, int64_t block, F&& f,
                                             Outside&& outside) {
  State* head = state_head<State>(view, block, place.hv);
  // Hidden, so that neither the places of 64 elements nor whether they exist is kept between calls.
  const int64_t row_step = p.kv_layout != 0 ? 1 : ptx::hidden_off_90(view.outer);
  const int64_t channel_step = p.kv_layout != 0 ? ptx::hidden_off_90(view.outer) : 1;
  const int row0 = ptx::hidden_off_90(place.row0), lk = ptx::hidden_off_90(place.thread.lk);
#pragma unroll
  for (int r = 0; r < C::kTileRows; ++r) {
    const int row = row0 + C::row(r, place.thread.lv);
#pragma unroll
    for (int e = 0; e < C::kThreadChannels; ++e) {
      const int channel = C::channel(e, lk);
      if (row < p.V && channel < p.K) {
        f(tile.s[r][e], head + row * row_step + channel * channel_step);
      } else {
        outside(tile.s[r][e]);
      }
    }
  }
}

template <class State, class C>
__device__ __forceinline__ void load_state_as(const Params& p, recurrent::StateTile<C>& tile,
                                              const StatePlace& place, const StateView& view,
                                              int64_t block) {
  each_element<State, C>(
      p, tile, place, view, block, [](float& x, const State* from) { x = to_float(*from); },
      [](float& x) { x = 0.f; });
}

template <class State, class C>
__device__ __forceinline__ void store_state_as(const Params& p, const recurrent::StateTile<C>& tile,
                                               const StatePlace& place, const StateView& view,
                                               int64_t block) {
  each_element<State, C>(
      p, tile, place, view, block, [](float x, State* to) { round_to(*to, x); }, [](float) {});
}

/// Zeros where the view has no data.
template <class C>
__device__ __forceinline__ void load_state(const Params& p, recurrent::StateTile<C>& tile,
                                           const StatePlace& place, const StateView& view,
                                           int64_t block) {
  if (view.data == nullptr) {
#pragma unroll
    for (int r = 0; r < C::kTileRows; ++r) {
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) tile.s[r][e] = 0.f;
    }
  } else if (p.bf16_state != 0) {
    load_state_as<__nv_bfloat16>(p, tile, place, view, block);
  } else {
    load_state_as<float>(p, tile, place, view, block);
  }
}

template <class C>
__device__ __forceinline__ void store_state(const Params& p, const recurrent::StateTile<C>& tile,
                                            const StatePlace& place, const StateView& view,
                                            int64_t block) {
  if (p.bf16_state != 0) {
    store_state_as<__nv_bfloat16>(p, tile, place, view, block);
  } else {
    store_state_as<float>(p, tile, place, view, block);
  }
}

}  // namespace goldenrule::gpu::prefill
