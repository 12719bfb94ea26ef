// SPDX-License-Identifier: Apache-2.0
//
// What a padded row gets from a block.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/delta/recurrent/params.hpp"
#include "gpu/delta/shared/block.cuh"

namespace goldenrule::gpu::recurrent {

/// o = 0 for `count` tokens of the block's rows, where it is wanted.
template <class C>
__device__ __forceinline__ void write_zeros(const Params& p, BlockPlace at, int count) {
  if (p.o.data == nullptr) return;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count * C::kBlockRows; i += C::kThreads) {
    const int row = at.row0 + i % C::kBlockRows;
    const int token = at.token0 + i / C::kBlockRows;
    if (C::kExact || row < p.V) {
      store_element(token_row(p.o, at.b, token, at.hv) + row * element_size(p.o_type), p.o_type,
                    0.f);
    }
  }
}

}  // namespace goldenrule::gpu::recurrent
