// SPDX-License-Identifier: Apache-2.0
//
// The states after tokens whose d are known (step.cuh), each written where the row keeps it.
#pragma once

#include "gpu/delta/recurrent/row_slots.cuh"
#include "gpu/delta/shared/step.cuh"

namespace goldenrule::gpu::recurrent {

/// The state after each of the first `follow` tokens, written where it goes.
template <class C>
__device__ __forceinline__ void follow_tokens(const Params& p, BlockPlace at, ThreadPlace thread,
                                              StateTile<C>& tile, const TokenStorage<C>& tokens,
                                              int first, int follow, FinalWrite final) {
  const int row_of_warp = thread.warp * C::kWarpRows;
#pragma unroll 1
  for (int t = 0; t < follow; ++t) {
    float d[C::kTileRows];
#pragma unroll
    for (int r = 0; r < C::kTileRows; ++r) d[r] = tokens.v[t][row_of_warp + C::row(r, thread.lv)];
    update<C>(tile, StoredToken<C>{tokens, t, thread.lk}, d);
    const int64_t slot = tokens.slot[t];
    if (state_is_kept(p, slot, first + t, final)) {
      store_state<C>(p, at, slot, first + t, final, [&](auto* head, int outer) {
        tile.store(head, outer, at.row0 + row_of_warp, thread, p);
      });
    }
  }
}

}  // namespace goldenrule::gpu::recurrent
