// SPDX-License-Identifier: Apache-2.0
//
// The triangle of the closed form in the lanes of a warp: d and o of four rows lie in the four
// lanes t of a g, two tokens per lane; a step passes one d to its neighbours.
#pragma once

#include "gpu/delta/shared/mtp_config.cuh"

namespace goldenrule::gpu::recurrent {

/// From x and y of the start state: d, and o in y, of `count` tokens. Columns: `beta` of tokens 2t
/// and 2t + 1, and weights(), a and b of these tokens with token j, anything where j is later.
/// kSelects: every lane makes every sum, and keeps those that count. Lanes that part and meet again
/// take longer than that, which counts where nothing but the triangle is under way.
template <class C, bool kSelects = false, class Columns>
__device__ __forceinline__ void solve_triangle(int count, const Columns& tokens, Fragment lane,
                                               const LaneTokens<C>& v, LaneTokens<C>& x,
                                               LaneTokens<C>& y, LaneTokens<C>& d) {
  const int token = 2 * lane.t;
  const auto add = [](float& sum, bool counts, float weight, float of) {
    if constexpr (kSelects) {
      const float more = fmaf(weight, of, sum);
      sum = counts ? more : sum;
    } else {
      if (counts) sum = fmaf(weight, of, sum);
    }
  };
#pragma unroll
  for (int j = 0; j < kMtpTokens; ++j) {
    if (j >= count) break;
    const int d_of = 4 * lane.g + j / 2;
    float a[2], b[2];
    tokens.weights(j, lane, a, b);
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
      const float own = tokens.beta[j % 2] * (v[row][j % 2] - x[row][j % 2]);
      const float dj = __shfl_sync(kAllLanes, own, d_of);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        add(x[row][c], j < token + c, a[c], dj);
        add(y[row][c], j <= token + c, b[c], dj);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) d[row][c] = tokens.beta[c] * (v[row][c] - x[row][c]);
  }
}

}  // namespace goldenrule::gpu::recurrent
