// SPDX-License-Identifier: Apache-2.0
//
// Gates of a chunk, one per key channel. A thread has two channels of 16 tokens.
//
// Levels (kda_levels.cuh) take gates of any kind as decays alpha of each token; alpha stays in
// fp32, and whoever wants a decay over several tokens multiplies. So there is no sum of logarithms
// and no exponential of a difference: alpha = 0 erases exactly, signs of linear gates and decays
// above 1 need no rule, and a gate of -2600 takes nothing from its neighbours. 31 products err by
// 2^-19, a thousandth of what the operands are rounded by.
//
// Anchors (kda_anchors.cuh) take sums of logarithms: a decay and its inverse are then one
// exponential each, without a chain of products. They do where no sum within 16 tokens is
// beyond kMostSum, so that neither is beyond the numbers of bf16: always with bounded gates, and
// with others as long as the gates of a chunk allow it.
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

/// Decays of any gate, left in `slots`, a row of the warp's channels for each token; returns their
/// product. One copy of the code that knows all gates, which is long.
__device__ __forceinline__ float2 make_decays(const Params& p, const ChunkPlace& at, KdaPlace place,
                                              float2 (*slots)[32]) {
  const KdaGates gates(p, at, place);
  const auto slot = [&](int i) -> float2& { return slots[i][place.lane]; };
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

inline constexpr float kLog2OfE = 1.4426950408889634f;

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

/// What up to 16 gates may sum to, base 2: that far bounded gates reach, e^-80.
inline constexpr float kMostSum = 116.f;

/// log2(1 + e) / e for 0 <= e <= 1, within 2^-22 relative with its roundings (the polynomial itself
/// is within 2^-24.9), so that a small gate is as accurate as a large one.
__device__ __forceinline__ float log2_of_one_more(float e) {
  float x = 0.00754917599f;
  x = fmaf(x, e, -0.0425670333f);
  x = fmaf(x, e, 0.112856142f);
  x = fmaf(x, e, -0.197118923f);
  x = fmaf(x, e, 0.275641382f);
  x = fmaf(x, e, -0.358408451f);
  x = fmaf(x, e, 0.480692953f);
  x = fmaf(x, e, -0.72134018f);
  return fmaf(x, e, 1.44269502f);
}

/// -rate log2(1 + e^(x + bias)).
class SoftplusGate {
 public:
  __device__ __forceinline__ explicit SoftplusGate(const KdaRate& rate)
      : rate_(-rate.rate), bias_(rate.bias) {}
  __device__ __forceinline__ float2 of(float2 x) const {
    return make_float2(of(x.x + bias_.x), of(x.y + bias_.y));
  }

 private:
  [[nodiscard]] __device__ __forceinline__ float of(float x) const {
    const float y = x * kLog2OfE;
    const float e = ptx::exp2_approximate(-fabsf(y));
    return rate_ * fmaf(log2_of_one_more(e), e, fmaxf(y, 0.f));
  }

  float rate_;
  float2 bias_;
};

/// Behind the end nothing decays.
__device__ __forceinline__ float2 hold_last_sum(int count, float2 (&sums)[kBlockTokens]) {
  if (count < kBlockTokens) {
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      if (i < count) sum = sums[i];
      sums[i] = sum;
    }
  }
  return sums[kBlockTokens - 1];
}

/// Gates of kinds that are logarithms or softplus, summed over the tokens, base 2; the last sum.
/// `allowed`: all sums are within kMostSum, and none is NaN.
__device__ __forceinline__ float2 make_summed_decays(const Params& p, const ChunkPlace& at,
                                                     KdaPlace place,
                                                     const uint32_t (&bits)[kBlockTokens],
                                                     float2 (&sums)[kBlockTokens], bool& allowed) {
  const KdaGates gates(p, at, place);
  convert_gates(gates, bits, sums);
  if (p.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS) {
    const SoftplusGate gate(KdaRate(p, at, place));
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) sums[i] = gate.of(sums[i]);
  } else {
    const float to_base_2 = p.gate_kind == GOLDENRULE_GPU_GATE_LOG ? kLog2OfE : 1.f;
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) sums[i] = sums[i] * to_base_2;
  }
  float2 sum = make_float2(0.f, 0.f);
  allowed = true;
#pragma unroll
  for (int i = 0; i < kBlockTokens; ++i) {
    sum = make_float2(sum.x + sums[i].x, sum.y + sums[i].y);
    sums[i] = sum;
    const bool within = fabsf(sum.x) <= kMostSum && fabsf(sum.y) <= kMostSum;
    allowed = allowed && (within || i >= gates.count);
  }
  return hold_last_sum(gates.count, sums);
}

/// Whether the gates of a call are of such kinds, and its keys of a length that lets them.
GOLDENRULE_GPU_BOTH inline bool may_sum(const Params& p) {
  const bool is_softplus = p.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS && p.softplus_beta == 1.f &&
                           p.softplus_threshold >= 20.f;
  const bool is_log =
      p.gate_kind == GOLDENRULE_GPU_GATE_LOG || p.gate_kind == GOLDENRULE_GPU_GATE_LOG2;
  return (is_softplus || is_log) && p.gate.data != nullptr &&
         p.norm_kind != GOLDENRULE_GPU_NORM_NONE;
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
  return hold_last_sum(gates.count, sums);
}

}  // namespace goldenrule::gpu::prefill
