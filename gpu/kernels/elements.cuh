// SPDX-License-Identifier: Apache-2.0
//
// Elements of the token tensors as fp32. Their type is a run-time value, the same for the whole
// grid: they are under a thousandth of the bytes, so a uniform branch costs nothing, and the
// kernels need not be multiplied by the types of q, k, v, gates and o.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/kernels/params.hpp"

namespace goldenrule::gpu {

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

/// Rounds to nearest even; overflow to infinity.
__device__ __forceinline__ void store_element(void* data, Element type, int64_t i, float x) {
  if (type == Element::kF32) {
    static_cast<float*>(data)[i] = x;
  } else if (type == Element::kBF16) {
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(x);
  } else {
    static_cast<__half*>(data)[i] = __float2half_rn(x);
  }
}

__device__ __forceinline__ int element_size(Element type) { return type == Element::kF32 ? 4 : 2; }

__device__ __forceinline__ const char* element_address(const void* data, Element type, int64_t i) {
  return static_cast<const char*>(data) + i * element_size(type);
}

/// The bits of an element, to be converted when they are needed: a conversion beside the load would
/// wait for it before the next load is issued.
__device__ __forceinline__ uint32_t load_bits(const void* data, Element type, int64_t i) {
  const char* p = element_address(data, type, i);
  if (type == Element::kF32) return *reinterpret_cast<const uint32_t*>(p);
  return *reinterpret_cast<const uint16_t*>(p);
}

__device__ __forceinline__ float from_bits(uint32_t bits, Element type) {
  if (type == Element::kF32) return __uint_as_float(bits);
  if (type == Element::kBF16) return bf16_low(bits);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// Four elements at `p`, aligned to four elements.
__device__ __forceinline__ float4 read_four(const char* p, Element type) {
  if (type == Element::kF32) return *reinterpret_cast<const float4*>(p);
  const uint2 pairs = *reinterpret_cast<const uint2*>(p);
  if (type == Element::kBF16) {
    return make_float4(bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y),
                       bf16_high(pairs.y));
  }
  const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&pairs.x));
  const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&pairs.y));
  return make_float4(a.x, a.y, b.x, b.y);
}

__device__ __forceinline__ int64_t load_index(const void* data, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(data)[i]
              : static_cast<int64_t>(static_cast<const int32_t*>(data)[i]);
}

}  // namespace goldenrule::gpu
