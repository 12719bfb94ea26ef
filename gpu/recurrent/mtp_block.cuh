// SPDX-License-Identifier: Apache-2.0
//
// What the kernels for a few tokens (mtp.cuh, mtp_channel.cuh and their replays) begin and end
// with: the place of a warp, and results in columns of tokens.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/ptx/grid_dependency.cuh"
#include "gpu/recurrent/mtp_config.cuh"
#include "gpu/recurrent/prefetch.cuh"

namespace goldenrule::gpu::recurrent {

struct MtpPlace {
  Fragment lane;
  int lane_id;
  BlockPlace at;
  int count;      // tokens of the row
  int warp_row0;  // first value row of the warp
  int row0;       // first value row of the lane
};

/// Returns when what the kernel in front writes may be read.
template <class C>
__device__ __forceinline__ MtpPlace begin_mtp(const Params& p) {
  const Fragment lane = this_fragment();
  BlockPlace at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + lane.warp * C::kWarpRows;
  if (p.draft.bounds == nullptr) prefetch_first_wave<C>(p, at);
  ptx::wait_for_dependencies();
  if (p.triggers != 0) ptx::launch_dependents();
  const Span span = tokens_of_row(p, at.b);
  at.token0 = span.first;
  return {.lane = lane,
          .lane_id = 4 * lane.g + lane.t,
          .at = at,
          .count = span.count,
          .warp_row0 = warp_row0,
          .row0 = warp_row0 + C::kLaneRows * lane.g};
}

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

/// o of the lane, where it is wanted.
template <class C>
__device__ __forceinline__ void store_output(const Params& p, const MtpPlace& here,
                                             const LaneTokens<C>& o) {
  if (p.o.data == nullptr) return;
  const int size = element_size(p.o_type);
  store_columns<C>(here.count, p.o_type, p.o_unit >= C::kLaneRows * size, o, here.lane,
                   [&](int token) {
                     const BlockPlace& at = here.at;
                     return token_row(p.o, at.b, at.token0 + token, at.hv) + here.row0 * size;
                   });
}

}  // namespace goldenrule::gpu::recurrent
