// SPDX-License-Identifier: Apache-2.0
//
// What the kernels for a few tokens (mtp.cuh, mtp_channel.cuh and their replays) begin and end
// with: the place of a warp, and their outputs.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/delta/recurrent/prefetch.cuh"
#include "gpu/delta/shared/mtp_columns.cuh"
#include "gpu/ptx/grid_dependency.cuh"

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
