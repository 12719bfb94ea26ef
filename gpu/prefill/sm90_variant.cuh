// SPDX-License-Identifier: Apache-2.0
//
// What the two variants for sm_90a ask of a call, whichever rule they serve: K = 128 and everything
// in bf16, in rows that the copy engine can address.
#pragma once

#include "gpu/prefill/tile.cuh"
#include "gpu/prefill/tile_maps.hpp"
#include "gpu/prefill/variants.hpp"

namespace goldenrule::gpu::prefill::sm90 {

inline bool runs_on(const Device& device) { return device.capability == 90; }

template <class Function>
Kernel described(Function* function, int threads, std::size_t shared_bytes, const char* name) {
  return {.function = reinterpret_cast<const void*>(function),
          .threads = threads,
          .shared_bytes = static_cast<int>(shared_bytes),
          .name = name,
          .runs_on = runs_on};
}

inline bool serves(const Params& p, const Device& device) {
  const bool tiles = is_tileable(p.q, p.q_unit) && is_tileable(p.k, p.k_unit) &&
                     is_tileable(p.v, p.v_unit) && is_tileable(p.o, p.o_unit);
  const bool bf16 =
      p.qk_type == Element::kBF16 && p.v_type == Element::kBF16 && p.o_type == Element::kBF16;
  return runs_on(device) && p.precise == 0 && p.K == kHeadKeys && p.V % kTileColumns == 0 &&
         tiles && bf16;
}

/// Whether a call of these sizes may be served, so that it needs a workspace.
inline bool may_serve(const Sizes& s) {
  return !s.precise && s.K == kHeadKeys && s.V % kTileColumns == 0 && s.N > 0;
}

}  // namespace goldenrule::gpu::prefill::sm90
