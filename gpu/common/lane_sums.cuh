// SPDX-License-Identifier: Apache-2.0
//
// Sums over eight lanes of a warp, for one value or for R values of a thread at once. Instead of R
// butterflies of three steps, each step halves the values: a lane keeps one half and sends the
// other (R = 8: 7 shuffles for 24). Afterwards a lane holds the sum of one value, number lk / (8 /
// R); all_gather returns one value per row to all lanes (3 shuffles for 4 rows). The tree of
// additions is the same for every R: lanes 4 apart, then 2, then 1, and a + b = b + a, so the bits
// do not depend on R.
//
// LaneStep is the distance, in lanes of the warp, of two that are neighbours among the eight, and
// lk the number of a lane among them.
#pragma once

namespace goldenrule::gpu {

inline constexpr int kWarp = 32;
inline constexpr int kSumLanes = 8;  ///< lanes that share a row and add up its sums
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// x[0] of the result: the sum over lanes of value lk / (8 / R).
template <int LaneStep, int R, int Step = kSumLanes / 2>
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

/// x[r] = `own` of the lanes lk % (2 Step) = r 2 Step / R and on, one value for each r < R.
template <int LaneStep, int R, int Step = kSumLanes / 2>
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

/// The sum of one value over the eight lanes, in all of them; the same tree.
template <int LaneStep>
__device__ __forceinline__ float sum_over_row(float x) {
#pragma unroll
  for (int step = kSumLanes / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step * LaneStep);
  }
  return x;
}

}  // namespace goldenrule::gpu
