// SPDX-License-Identifier: Apache-2.0
//
// Rows of q, k, v or a gate in shared memory: staged as the bytes they are by the eight lanes that
// share a row, and read as fp32.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/common/lane_sums.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu {

inline constexpr int kRowSpan =
    4 * kSumLanes;  ///< elements that the lanes of a row cover at a time

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

/// Copies `bytes` by the eight lanes of a row, `lane` 0..7. Rows are short: unrolled loops would
/// only fill the instruction cache.
__device__ __forceinline__ void copy_row(void* shared, const char* from, int bytes, int unit,
                                         int lane) {
  char* to = static_cast<char*>(shared);
  const int step = unit * kSumLanes;
#pragma unroll 1
  for (int i = unit * lane; i < bytes; i += step) {
    if (unit == 16) {
      ptx::copy_async_16(to + i, from + i);
    } else if (unit == 8) {
      ptx::copy_async_8(to + i, from + i);
    } else if (unit == 4) {
      ptx::copy_async_4(to + i, from + i);
    } else {
      *reinterpret_cast<uint16_t*>(to + i) = *reinterpret_cast<const uint16_t*>(from + i);
    }
  }
}

/// Element of a row of v that comes `i`-th to a lane, in fours.
__device__ __forceinline__ int v_element(int i, int lane) { return i * kRowSpan + 4 * lane; }

/// Four elements of a staged row, from `at` on; those from `count` on are 0.
template <class Type>
__device__ __forceinline__ float4 read_row(const float* row, int at, int count) {
  float4 x = Type::read(reinterpret_cast<const char*>(row) + at * Type::kSize);
  if (at >= count) x.x = 0.f;
  if (at + 1 >= count) x.y = 0.f;
  if (at + 2 >= count) x.z = 0.f;
  if (at + 3 >= count) x.w = 0.f;
  return x;
}

/// Element `i` of a staged row.
__device__ __forceinline__ float staged_element(const float* row, Element type, int i) {
  const char* p = reinterpret_cast<const char*>(row) + i * element_size(type);
  if (type == Element::kF32) return *reinterpret_cast<const float*>(p);
  return from_bits(*reinterpret_cast<const uint16_t*>(p), type);
}

__device__ __forceinline__ float add_squares(float sum, float4 x) {
  sum = fmaf(x.x, x.x, sum);
  sum = fmaf(x.y, x.y, sum);
  sum = fmaf(x.z, x.z, sum);
  return fmaf(x.w, x.w, sum);
}

__device__ __forceinline__ float4 scaled(float4 x, float factor) {
  return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}

}  // namespace goldenrule::gpu
