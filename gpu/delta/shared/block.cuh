// SPDX-License-Identifier: Apache-2.0
//
// Which part of the work a block does: one head of one row of the batch, kBlockRows value rows.
#pragma once

namespace goldenrule::gpu::recurrent {

/// The head of a row that a block works on.
struct BlockPlace {
  int b, hv, h;
  int row0;        // first value row of the block
  int token0 = 0;  // where the tokens of the row begin among packed ones (draft_rows.cuh)
};

/// The block of tile number `tile`, counted over rows of the batch, heads and rows of value.
template <class C, class P>
__device__ __forceinline__ BlockPlace place_of(const P& p, int tile) {
  const int head = p.by_tiles.quotient(tile);
  const int b = p.by_heads.quotient(head);
  const int hv = head - b * p.HV;
  const int in_group = p.by_group.quotient(hv);
  return {.b = b,
          .hv = hv,
          .h = p.tiled_heads ? hv - in_group * p.group : in_group,
          .row0 = (tile - head * p.tiles) * C::kBlockRows};
}

}  // namespace goldenrule::gpu::recurrent
