// SPDX-License-Identifier: Apache-2.0
//
// Results of a warp that lie in columns of tokens, to where their tokens are.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/delta/shared/mtp_config.cuh"

namespace goldenrule::gpu::recurrent {

/// The lane's part of x, columns 2t and 2t + 1, to the rows of these tokens of `count`.
template <class C, class RowOf>
__device__ __forceinline__ void store_columns(int count, Element type, bool aligned,
                                              const LaneTokens<C>& x, Fragment lane,
                                              RowOf&& row_of) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int token = 2 * lane.t + c;
    if (token >= count) continue;
    const float column[4] = {x[0][c], x[1][c], x[C::kLaneRows - 2][c], x[C::kLaneRows - 1][c]};
    store_some<C::kLaneRows>(row_of(token), type, aligned, column);
  }
}

}  // namespace goldenrule::gpu::recurrent
