// SPDX-License-Identifier: Apache-2.0
//
// Elements of the token tensors as fp32. Their type is a run-time value, the same for the whole
// grid: they are under a thousandth of the bytes, so a uniform branch costs nothing, and the
// kernels need not be multiplied by the types of q, k, v, gates and o.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "gpu/common/views.hpp"
#include "gpu/ptx/memory.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu {

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ int element_size(Element type) { return type == Element::kF32 ? 4 : 2; }

/// Rounds to nearest even; overflow to infinity.
__device__ __forceinline__ void store_element(char* to, Element type, float x) {
  if (type == Element::kF32) {
    *reinterpret_cast<float*>(to) = x;
  } else if (type == Element::kBF16) {
    *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(x);
  } else {
    *reinterpret_cast<__half*>(to) = __float2half_rn(x);
  }
}

/// N = 2 or 4 consecutive elements; `aligned` promises alignment to all of them.
template <int N>
__device__ __forceinline__ void store_some(char* to, Element type, bool aligned,
                                           const float (&x)[4]) {
  if (aligned && type == Element::kBF16) {  // as a vector where it matters: what models use
    const __nv_bfloat162 low = __floats2bfloat162_rn(x[0], x[1]);
    if constexpr (N == 2) {
      *reinterpret_cast<__nv_bfloat162*>(to) = low;
    } else {
      const __nv_bfloat162 high = __floats2bfloat162_rn(x[2], x[3]);
      *reinterpret_cast<uint2*>(to) = make_uint2(*reinterpret_cast<const uint32_t*>(&low),
                                                 *reinterpret_cast<const uint32_t*>(&high));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) store_element(to + i * element_size(type), type, x[i]);
}

/// The bits of an element, to be converted when they are needed: a conversion beside the load would
/// wait for it before the next load is issued.
__device__ __forceinline__ uint32_t load_bits(const char* p, Element type) {
  if (type == Element::kF32) return *reinterpret_cast<const uint32_t*>(p);
  return *reinterpret_cast<const uint16_t*>(p);
}

/// Chosen by selects: a branch costs a lone warp more than both conversions.
__device__ __forceinline__ float from_bits(uint32_t bits, Element type) {
  const float half = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  const float other = __uint_as_float(type == Element::kBF16 ? bits << 16 : bits);
  return type == Element::kF16 ? half : other;
}

/// An element on its way, in a register for each size, loaded by predicates: a second load to one
/// register waits for the first, and so does a copy of a register, which the compiler may put
/// behind a branch. One not requested is 0.
class LoadedElement {
 public:
  __device__ __forceinline__ void request(const char* p, Element type) {
    ptx::load_word_or_half<static_cast<uint32_t>(Element::kF32)>(word_, half_, p,
                                                                 static_cast<uint32_t>(type));
  }
  __device__ __forceinline__ float get(Element type) const {
    return from_bits(word_ | half_, type);
  }
  /// The same, converted anew: it is not kept from a get() far before.
  __device__ __forceinline__ float get_anew(Element type) const {
    return from_bits(ptx::hidden_off_90(word_ | half_), type);
  }

 private:
  uint32_t word_ = 0, half_ = 0;
};

/// A type known to the compiler. with_type(type, f) calls f with the tag of `type`: one uniform
/// branch around a loop, where a branch at each element would be most of the instructions of a
/// decode step.
template <Element E>
struct Typed {
  static constexpr Element kType = E;
  static constexpr int kSize = E == Element::kF32 ? 4 : 2;
  using Bits = std::conditional_t<E == Element::kF32, uint4, uint2>;  // of four elements

  __device__ static __forceinline__ float4 to_float(Bits bits) {
    if constexpr (E == Element::kF32) {
      return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                         __uint_as_float(bits.w));
    } else if constexpr (E == Element::kBF16) {
      return make_float4(bf16_low(bits.x), bf16_high(bits.x), bf16_low(bits.y), bf16_high(bits.y));
    } else {
      const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&bits.x));
      const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&bits.y));
      return make_float4(a.x, a.y, b.x, b.y);
    }
  }
  /// Four elements at `p`, aligned to all four.
  __device__ static __forceinline__ float4 read(const char* p) {
    return to_float(*reinterpret_cast<const Bits*>(p));
  }
};

template <class F>
__device__ __forceinline__ void with_type(Element type, F&& f) {
  if (type == Element::kBF16) {
    f(Typed<Element::kBF16>{});
  } else if (type == Element::kF16) {
    f(Typed<Element::kF16>{});
  } else {
    f(Typed<Element::kF32>{});
  }
}

/// The bits of N = 2 or 4 consecutive elements, in the first words; `aligned` promises alignment to
/// all of them.
template <int N>
__device__ __forceinline__ uint4 load_some_bits(const char* p, Element type, bool aligned) {
  uint32_t x[4] = {};
  if (type == Element::kF32) {
    if (aligned && N == 4) return *reinterpret_cast<const uint4*>(p);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = reinterpret_cast<const uint32_t*>(p)[i];
  } else if (aligned) {
    x[0] = reinterpret_cast<const uint32_t*>(p)[0];
    if constexpr (N == 4) {
      const uint2 pairs = *reinterpret_cast<const uint2*>(p);
      return make_uint4(pairs.x, pairs.y, 0, 0);
    }
  } else {
    const auto* from = reinterpret_cast<const uint16_t*>(p);
#pragma unroll
    for (int i = 0; i < N; i += 2) x[i / 2] = from[i] | static_cast<uint32_t>(from[i + 1]) << 16;
  }
  return make_uint4(x[0], x[1], x[2], x[3]);
}

template <class Type>
__device__ __forceinline__ float4 four_from_bits(uint4 bits) {
  if constexpr (Type::kSize == 4) {
    return Type::to_float(bits);
  } else {
    return Type::to_float(make_uint2(bits.x, bits.y));
  }
}

/// Where a row of a token tensor starts.
__device__ __forceinline__ char* token_row(const TokenView& x, int b, int t, int head) {
  return x.data + (static_cast<uint64_t>(x.row) * static_cast<uint32_t>(b) +
                   static_cast<uint64_t>(x.token) * static_cast<uint32_t>(t) +
                   static_cast<uint64_t>(x.head) * static_cast<uint32_t>(head));
}

/// Element `head` of A_log, or row `head` of dt_bias.
__device__ __forceinline__ const char* head_row(const void* data, uint32_t stride, int head) {
  return static_cast<const char*>(data) +
         static_cast<uint64_t>(stride) * static_cast<uint32_t>(head);
}

/// The bits of an index, likewise to be converted later.
__device__ __forceinline__ uint2 load_index_bits(const void* data, bool wide, int64_t i) {
  if (wide) return static_cast<const uint2*>(data)[i];
  return make_uint2(static_cast<const uint32_t*>(data)[i], 0);
}

__device__ __forceinline__ int64_t index_from_bits(uint2 bits, bool wide) {
  if (!wide) return static_cast<int32_t>(bits.x);
  return static_cast<int64_t>(static_cast<uint64_t>(bits.y) << 32 | bits.x);
}

__device__ __forceinline__ int64_t load_index(const void* data, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(data)[i]
              : static_cast<int64_t>(static_cast<const int32_t*>(data)[i]);
}

}  // namespace goldenrule::gpu
