// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a block in shared memory, and how eight lanes share a row of them.
#pragma once

#include "gpu/kernels/config.cuh"

namespace goldenrule::gpu {

inline constexpr int kRowLanes = 8;             // lanes that share a row of q, k or v
inline constexpr int kRowSpan = 4 * kRowLanes;  // elements that they cover at a time

/// Lifetime: k, q and v hold raw bytes from request() to finish(), fp32 from then on until the
/// block has done these tokens; a barrier at each change. Then, with channel gates, q is decayed
/// from the start, and v becomes d. Channels K..KP-1 of k, q and alpha are zero.
template <class C>
struct alignas(16) TokenStorage {
  static_assert(C::kRows % kRowSpan == 0 && C::kKP % kRowSpan == 0, "rows hold whole spans");
  float k[C::kTC][C::kKP];
  float q[C::kTC][C::kKP];
  float v[C::kTC][C::kRows];
  float alpha[C::kTC][C::kChannelGate ? C::kKP : 1];
  /// Channel gates only. The raw gate until alpha is made of it, then k^ decayed from the start.
  float decayed_k[C::kChannelGate ? C::kTC : 1][C::kChannelGate ? C::kKP : 4];
  float raw_dt_bias[C::kChannelGate ? C::kKP : 4];
  float beta[C::kTC];
  float decay[C::kTC];  // head gates: alpha from the first to this token, else 1
  alignas(16) float weight[C::kTC][2][C::kTC];  // see relations.cuh
  float product[C::kTC][C::kThreads];           // of the state with k^ or q^: each thread its own
  int64_t slot[C::kTC];  // scatter form: where the state after this token goes, or kNoSlot
};

/// The head of a row that a block works on.
struct Place {
  int b, hv, h;
  int row0;  // first value row of the block
};

/// N consecutive floats of shared memory, 16 bytes at a time.
template <int N>
__device__ __forceinline__ void read_fours(float (&x)[N], const float* from) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    x[i] = four.x;
    x[i + 1] = four.y;
    x[i + 2] = four.z;
    x[i + 3] = four.w;
  }
}

/// Sum over the eight lanes of a row, `LaneStep` apart; the same tree everywhere.
template <int LaneStep>
__device__ __forceinline__ float sum_over_row(float x) {
#pragma unroll
  for (int step = kRowLanes / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step * LaneStep);
  }
  return x;
}

}  // namespace goldenrule::gpu
