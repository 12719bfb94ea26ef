// SPDX-License-Identifier: Apache-2.0
//
// What the warps of chunk8.cuh and chunk8_channel.cuh have in common: the state of 16 value rows in
// their registers, from where it comes and where it goes, and the rows of o that they write.
#pragma once

#include "gpu/delta/prefill/sequences.cuh"
#include "gpu/delta/prefill/state_registers.cuh"
#include "gpu/delta/shared/block.cuh"
#include "gpu/delta/shared/mtp_columns.cuh"
#include "gpu/delta/shared/mtp_config.cuh"
#include "gpu/ptx/barrier.cuh"

namespace goldenrule::gpu::prefill {

using recurrent::BlockPlace;
using recurrent::Fragment;
using recurrent::kMtpTokens;
using recurrent::LaneTokens;

/// A lane holds value rows 2g and 2g + 1 of the warp and, of its channels, kNeighbours at a time.
template <class C, int kNeighbours>
class WarpRows {
 public:
  __device__ __forceinline__ WarpRows(BlockPlace at, Fragment lane)
      : lane_(lane),
        lane_id_(4 * lane.g + lane.t),
        place_{.first_value = at.row0 + C::kWarpRows * lane.warp + 2 * lane.g,
               .first_channel = kNeighbours * lane.t} {}

  /// The lane's first value row.
  [[nodiscard]] __device__ __forceinline__ int row() const { return place_.first_value; }

  __device__ __forceinline__ void load(const Params& p, int64_t slot, int hv) {
    load_state<kOrder>(p, slot, hv, place_, state_);
  }
  __device__ __forceinline__ void store(const Params& p, const StateView& view, int64_t block,
                                        int hv) const {
    store_state<kOrder>(p, view, block, hv, place_, state_);
  }
  /// To and from shared memory, while another state is made of it.
  __device__ __forceinline__ void save(float (&to)[kStateRegisters][kWarp]) const {
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) to[i][lane_id_] = state_[i];
  }
  __device__ __forceinline__ void restore(const float (&from)[kStateRegisters][kWarp]) {
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) state_[i] = from[i][lane_id_];
  }

  /// o of the lane's tokens among `count` from `first` on.
  __device__ __forceinline__ void store_output(const Params& p, int hv, int first, int count,
                                               const LaneTokens<C>& o) const {
    const int size = element_size(p.o_type);
    recurrent::store_columns<C>(
        count, p.o_type, p.o_unit >= C::kLaneRows * size, o, lane_,
        [&](int token) { return token_row(p.o, 0, first + token, hv) + row() * size; });
  }

 protected:
  static constexpr StateOrder kOrder{.apart = 1, .neighbours = kNeighbours};

  Fragment lane_;
  int lane_id_;
  StateLane place_;
  float state_[kStateRegisters];
};

/// The tokens of chunk `chunk` among `count`, 0 behind the last one.
__device__ __forceinline__ int tokens_of_chunk(int chunk, int count) {
  const int left = count - chunk * kMtpTokens;
  return left < 0 ? 0 : left < kMtpTokens ? left : kMtpTokens;
}

/// All threads of the block meet for the `i`-th time, at storage.meeting. The roles come to it from
/// different places, so it is no barrier of instructions.
template <class Storage>
__device__ __forceinline__ void meet(Storage& storage, int i) {
  ptx::arrive(storage.meeting);
  ptx::wait_for_phase(storage.meeting, static_cast<uint32_t>(i) & 1U);
}

}  // namespace goldenrule::gpu::prefill
