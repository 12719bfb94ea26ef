// SPDX-License-Identifier: Apache-2.0
//
// What a padded sequence gets from a block of the kernels that take a tile of value rows each.
#pragma once

#include "gpu/delta/prefill/sequences.cuh"
#include "gpu/delta/shared/block.cuh"

namespace goldenrule::gpu::prefill {

using recurrent::BlockPlace;

/// o = 0 for all tokens of the sequence, in the rows of this block.
template <class C>
__device__ __forceinline__ void write_zeros(const Params& p, BlockPlace at, Span span) {
  constexpr int kTokens = C::kThreads / C::kBlockRows;  // at a time
  static_assert(kTokens >= 1 && C::kThreads % C::kBlockRows == 0, "a thread for every row");
  const int row = at.row0 + static_cast<int>(threadIdx.x) % C::kBlockRows;
  if (row >= p.V) return;
#pragma unroll 1
  for (int t = static_cast<int>(threadIdx.x) / C::kBlockRows; t < span.count; t += kTokens) {
    store_element(token_row(p.o, 0, span.first + t, at.hv) + row * element_size(p.o_type), p.o_type,
                  0.f);
  }
}

}  // namespace goldenrule::gpu::prefill
