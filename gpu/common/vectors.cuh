// SPDX-License-Identifier: Apache-2.0
//
// Elements of the state as memory instructions move them: 4, 8 or 16 bytes at a time, in the type
// in which they are stored. A conversion to fp32 is exact; round_to is the one rounding of a store.
#pragma once

#include <cuda_bf16.h>

#include "gpu/ptx/async_copy.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void round_to(float& to, float x) { to = x; }
__device__ __forceinline__ void round_to(__nv_bfloat16& to, float x) {
  to = __float2bfloat16_rn(x);
}

/// N elements as they lie in memory; N * sizeof(State) is 4, 8 or 16.
template <class State, int N>
struct alignas(N * sizeof(State)) Vector {
  State x[N];

  __device__ static Vector load(const State* p) {
    Vector v;
    if constexpr (sizeof(Vector) == 16) {
      *reinterpret_cast<uint4*>(&v) = ptx::load_streaming_16(p);
    } else if constexpr (sizeof(Vector) == 8) {
      *reinterpret_cast<uint2*>(&v) = ptx::load_streaming_8(p);
    } else {
      static_assert(sizeof(Vector) == 4, "a vector is one memory instruction");
      *reinterpret_cast<uint32_t*>(&v) = ptx::load_streaming_4(p);
    }
    return v;
  }
  __device__ void request(const State* p) {
    if constexpr (sizeof(Vector) == 16) {
      ptx::copy_async_16(this, p);
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::copy_async_8(this, p);
    } else {
      ptx::copy_async_4(this, p);
    }
  }
  __device__ void store(State* p) const {
    if constexpr (sizeof(Vector) == 16) {
      ptx::store_16(p, *reinterpret_cast<const uint4*>(this));
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::store_8(p, *reinterpret_cast<const uint2*>(this));
    } else {
      ptx::store_4(p, *reinterpret_cast<const uint32_t*>(this));
    }
  }
  __device__ void store_streaming(State* p) const {
    if constexpr (sizeof(Vector) == 16) {
      ptx::store_streaming_16(p, *reinterpret_cast<const uint4*>(this));
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::store_streaming_8(p, *reinterpret_cast<const uint2*>(this));
    } else {
      ptx::store_streaming_4(p, *reinterpret_cast<const uint32_t*>(this));
    }
  }
};

}  // namespace goldenrule::gpu
