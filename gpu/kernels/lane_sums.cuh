// SPDX-License-Identifier: Apache-2.0
//
// Sums over the 8 lanes along K, for the R rows of a thread at once. Instead of R butterflies of
// three steps, each step halves the rows: a lane keeps one half and sends the other (R = 4: 4
// shuffles for 12). Afterwards a lane holds the sum of one row, owned_row(); all_gather returns
// one value a row to all 8 lanes (3 shuffles for R = 4). The tree of additions is the same for
// every R: lanes 4 apart, then 2, then 1, and a + b = b + a, so the bits do not depend on R.
#pragma once

#include "gpu/kernels/config.cuh"

namespace goldenrule::gpu {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// LaneStep: Config::kLaneStepK. x[0] of the result: the sum over lanes of row owned_row<R>(lk).
template <int LaneStep, int R, int Step = kLanesK / 2>
__device__ __forceinline__ void reduce_scatter(float (&x)[R], int lk) {
  float y[R > 1 ? R / 2 : 1];
  if constexpr (R > 1) {
    const bool upper = (lk & Step) != 0;
#pragma unroll
    for (int i = 0; i < R / 2; ++i) {
      const float keep = upper ? x[i + R / 2] : x[i];
      const float send = upper ? x[i] : x[i + R / 2];
      y[i] = keep + __shfl_xor_sync(kAllLanes, send, Step * LaneStep);
    }
  } else {
    y[0] = x[0] + __shfl_xor_sync(kAllLanes, x[0], Step * LaneStep);
  }
  if constexpr (Step > 1) reduce_scatter<LaneStep, (R > 1 ? R / 2 : 1), Step / 2>(y, lk);
  x[0] = y[0];
}

/// Row of the register tile whose sum lane lk holds after reduce_scatter.
template <int R>
__device__ __forceinline__ int owned_row(int lk) {
  return R == 1 ? 0 : lk / (kLanesK / R);
}

/// Whether lane lk is the one that stores the value of its row (8 / R lanes hold each).
template <int R>
__device__ __forceinline__ bool stores_row(int lk) {
  return R == 1 ? lk == 0 : lk % (kLanesK / R) == 0;
}

/// x[r] = the value that the lanes owning row r hold.
template <int LaneStep, int R, int Step = kLanesK / 2>
__device__ __forceinline__ void all_gather(float (&x)[R], float own, int lk) {
  if constexpr (R == 1) {
    x[0] = own;
  } else {
    float half[R / 2];
    all_gather<LaneStep, R / 2, Step / 2>(half, own, lk);
    const bool upper = (lk & Step) != 0;
#pragma unroll
    for (int i = 0; i < R / 2; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, half[i], Step * LaneStep);
      x[i] = upper ? other : half[i];
      x[i + R / 2] = upper ? half[i] : other;
    }
  }
}

}  // namespace goldenrule::gpu
