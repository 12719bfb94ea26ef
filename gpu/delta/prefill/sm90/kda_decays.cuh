// SPDX-License-Identifier: Apache-2.0
//
// Gates of a chunk, one per key channel. A thread has two channels of 16 tokens.
//
// Gates of any kind become decays alpha of each token; alpha stays in fp32, and whoever wants a
// decay over several tokens multiplies. So there is no sum of logarithms and no exponential of a
// difference: alpha = 0 erases exactly, signs of linear gates and decays above 1 need no rule, and
// a gate of -2600 takes nothing from its neighbours. 31 products err by 2^-19, a thousandth of what
// the operands are rounded by.
//
// Bounded gates, of which 16 sum to -80 at least, are summed instead: a decay and its inverse are
// then one exponential each, without a chain of products.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/common/gates.cuh"
#include "gpu/delta/prefill/sm90/chunks.cuh"
#include "gpu/delta/prefill/sm90/kda_place.cuh"
#include "gpu/ptx/functions.cuh"

namespace goldenrule::gpu::prefill {

/// Two elements as they lie in memory.
__device__ __forceinline__ uint2 load_pair_bits(const char* at, Element type, bool aligned) {
  if (type == Element::kF32) {
    if (aligned) return *reinterpret_cast<const uint2*>(at);
  } else if (aligned) {
    const auto both = *reinterpret_cast<const uint32_t*>(at);
    return make_uint2(both & 0xffffu, both >> 16);
  }
  return make_uint2(load_bits(at, type), load_bits(at + element_size(type), type));
}

[[nodiscard]] __device__ __forceinline__ float2 converted(uint2 bits, Element type) {
  return make_float2(from_bits(bits.x, type), from_bits(bits.y, type));
}

/// The gates of a thread's tokens in memory.
struct KdaGates {
  const char* first;
  uint64_t stride;
  int count;  ///< tokens that there are; beyond 16: those of the other threads
  Element type;
  bool aligned;

  __device__ __forceinline__ KdaGates(const Params& p, const ChunkPlace& at, KdaPlace place)
      : first(token_row(p.gate, 0, at.first + kBlockTokens * place.half, at.hv) +
              place.channel() * element_size(p.gate_type)),
        stride(p.gate.token),
        count(at.count - kBlockTokens * place.half),
        type(p.gate_type),
        aligned(p.gate_unit >= 2 * element_size(p.gate_type)) {}

  [[nodiscard]] __device__ __forceinline__ const char* of(int i) const {
    return first + stride * static_cast<uint32_t>(i);
  }
  /// A thread's channels of a token are one word.
  [[nodiscard]] __device__ __forceinline__ bool in_words() const {
    return aligned && element_size(type) == 2;
  }
};

/// exp(A_log) and dt_bias of a thread's channels.
struct KdaRate {
  float rate = 1.f;
  float2 bias = make_float2(0.f, 0.f);

  __device__ __forceinline__ KdaRate(const Params& p, const ChunkPlace& at, KdaPlace place) {
    const int head = p.gate_by_qk_head != 0 ? at.h : at.hv;
    if (p.A_log != nullptr) {
      rate = expf(from_bits(load_bits(head_row(p.A_log, p.A_log_stride, head), p.A_log_type),
                            p.A_log_type));
    }
    if (p.dt_bias != nullptr) {
      const int size = element_size(p.dt_bias_type);
      const char* row = head_row(p.dt_bias, p.dt_bias_stride, head);
      bias = converted(
          load_pair_bits(row + place.channel() * size, p.dt_bias_type, p.dt_bias_unit >= 2 * size),
          p.dt_bias_type);
    }
  }
};

/// Decays of any gate, left in `slots`, a row of all channels for each token; returns their
/// product. One copy of the code that knows all gates, which is long.
__device__ __forceinline__ float2 make_decays(const Params& p, const ChunkPlace& at, KdaPlace place,
                                              float2 (*slots)[kHeadKeys / 2]) {
  const KdaGates gates(p, at, place);
  const auto slot = [&](int i) -> float2& {
    return slots[kBlockTokens * place.half + i][place.pair()];
  };
  if (p.gate.data != nullptr) {
#pragma unroll 8
    for (int i = 0; i < kBlockTokens; ++i) {
      if (i < gates.count) {
        slot(i) = converted(load_pair_bits(gates.of(i), gates.type, gates.aligned), gates.type);
      }
    }
  }
  const KdaRate rate(p, at, place);
  float2 total = make_float2(1.f, 1.f);
#pragma unroll 1
  for (int i = 0; i < kBlockTokens; ++i) {
    float2 alpha = make_float2(1.f, 1.f);  // behind the end
    if (i < gates.count && p.gate.data != nullptr) {
      const float2 x = slot(i);
      alpha = make_float2(alpha_of(p, x.x, rate.rate, rate.bias.x),
                          alpha_of(p, x.y, rate.rate, rate.bias.y));
    }
    slot(i) = alpha;
    total = total * alpha;
  }
  return total;
}

__device__ __forceinline__ float2 exp2_of(float2 x) {
  return make_float2(ptx::exp2_approximate(x.x), ptx::exp2_approximate(x.y));
}

/// bound sigmoid(rate (x + bias)) to the base 2, by approximate functions: 2^-21 of the sigmoid and
/// what its argument is rounded by.
class BoundedGate {
 public:
  __device__ __forceinline__ BoundedGate(const Params& p, const KdaRate& rate)
      : rate_(-rate.rate * kLog2OfE), bound_(p.lower_bound * kLog2OfE), bias_(rate.bias * rate_) {}

  /// `sum` and the gate.
  __device__ __forceinline__ float2 added(float2 x, float2 sum) const {
    return make_float2(added(x.x, bias_.x, sum.x), added(x.y, bias_.y, sum.y));
  }

 private:
  static constexpr float kLog2OfE = 1.4426950408889634f;

  [[nodiscard]] __device__ __forceinline__ float added(float x, float bias, float sum) const {
    const float e = ptx::exp2_approximate(fmaf(rate_, x, bias));
    return fmaf(bound_, ptx::reciprocal_approximate(1.f + e), sum);
  }

  float rate_, bound_;
  float2 bias_;
};

/// Asks for gates of two bytes, as models have them: all on the way at once.
__device__ __forceinline__ void fetch_gates(const KdaGates& gates, uint32_t (&bits)[kBlockTokens]) {
  if (!gates.in_words()) return;
  const char* from = gates.first;
  if (gates.count >= kBlockTokens) {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i, from += gates.stride) {
      bits[i] = *reinterpret_cast<const uint32_t*>(from);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kBlockTokens; ++i, from += gates.stride) {
    bits[i] = i < gates.count ? *reinterpret_cast<const uint32_t*>(from) : 0u;
  }
}

/// The gates, from `bits` where they are fetched.
__device__ __forceinline__ void convert_gates(const KdaGates& gates,
                                              const uint32_t (&bits)[kBlockTokens],
                                              float2 (&x)[kBlockTokens]) {
  if (!gates.in_words()) {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      x[i] = make_float2(0.f, 0.f);
      if (i < gates.count) {
        x[i] = converted(load_pair_bits(gates.of(i), gates.type, gates.aligned), gates.type);
      }
    }
  } else if (gates.type == Element::kBF16) {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) x[i] = unpacked(bits[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      x[i] = converted(make_uint2(bits[i] & 0xffffu, bits[i] >> 16), gates.type);
    }
  }
}

/// Bounded gates summed over the tokens, base 2; returns the last sum. 16 of them sum to -116 at
/// most, in steps of 2^-17 or less: 2^-14 of a decay at worst, a thirtieth of what operands are
/// rounded by.
__device__ __forceinline__ float2 make_bounded_decays(const Params& p, const ChunkPlace& at,
                                                      KdaPlace place,
                                                      const uint32_t (&bits)[kBlockTokens],
                                                      float2 (&sums)[kBlockTokens]) {
  const KdaGates gates(p, at, place);
  convert_gates(gates, bits, sums);
  const BoundedGate gate(p, KdaRate(p, at, place));
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll
  for (int i = 0; i < kBlockTokens; ++i) {
    sum = gate.added(sums[i], sum);
    sums[i] = sum;
  }
  if (gates.count < kBlockTokens) {  // nothing decays behind the end
    sum = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      if (i < gates.count) sum = sums[i];
      sums[i] = sum;
    }
  }
  return sum;
}

}  // namespace goldenrule::gpu::prefill
