// SPDX-License-Identifier: Apache-2.0
//
// How the copy engine sees k, q, v and o: boxes of the tokens of a chunk and 64 elements of one
// head, in the order of tile.cuh. Made on the host from pointers and strides for each launch; the
// device changes nothing in them.
#pragma once

#include <cuda.h>

#include "gpu/delta/prefill/params.hpp"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu::prefill {

struct TileMaps {
  CUtensorMap k, q, v, o;
};

/// Whether the copy engine can address a tensor: a distance of 0 between tokens or heads it cannot.
constexpr bool is_tileable(const TokenView& view, int unit) {
  return unit == 16 && view.token > 0 && view.head > 0;
}

/// For at least one token; all four tensors are tileable. `chunk`: tokens of a box.
[[nodiscard]] Problem make_tile_maps(const Params& p, int chunk, TileMaps& maps);

}  // namespace goldenrule::gpu::prefill
