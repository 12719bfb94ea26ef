// SPDX-License-Identifier: Apache-2.0
//
// Gates of a chunk, one per key channel, as decays alpha of each token. A thread has two channels
// of 16 tokens; alpha stays in fp32, and whoever wants a decay over several tokens multiplies. So
// there is no sum of logarithms and no exponential of a difference: alpha = 0 erases exactly, signs
// of linear gates and decays above 1 need no rule, and a gate of -2600 takes nothing from its
// neighbours. 31 products err by 2^-19, a thousandth of what the operands are rounded by.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/common/gates.cuh"
#include "gpu/prefill/chunks.cuh"
#include "gpu/prefill/kda_storage.cuh"
#include "gpu/ptx/functions.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kBlockTokens = 16;

/// Which part of a chunk a thread of 128 has: warp = 2 half + side.
struct KdaPlace {
  int half;  ///< tokens 16 half to 16 half + 15
  int side;  ///< channels 64 side to 64 side + 63
  int lane;  ///< channels 2 lane and 2 lane + 1 of these

  [[nodiscard]] __device__ __forceinline__ int pair() const { return 32 * side + lane; }
  [[nodiscard]] __device__ __forceinline__ int channel() const { return 2 * pair(); }
};

__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
  return make_float2(a.x * b.x, a.y * b.y);
}
__device__ __forceinline__ float2 operator*(float2 a, float b) {
  return make_float2(a.x * b, a.y * b);
}

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

/// e^(bound sigmoid(rate (x + bias))), by approximate functions: 2^-21 of the sigmoid and what its
/// argument is rounded by.
struct BoundedDecay {
  float rate, log2_bound;

  __device__ __forceinline__ float operator()(float x, float bias) const {
    const float e = ptx::exp2_approximate(rate * (x + bias));
    return ptx::exp2_approximate(log2_bound * ptx::reciprocal_approximate(1.f + e));
  }
};

/// The decays of a thread's tokens, and their product.
class KdaDecays {
 public:
  __device__ __forceinline__ KdaDecays(const Params& p, KdaPreparationStorage& storage,
                                       const ChunkPlace& at, KdaPlace place)
      : p_(p), s_(storage), at_(at), place_(place) {}

  __device__ __forceinline__ void make() {
    load_gates();
    const int head = p_.gate_by_qk_head != 0 ? at_.h : at_.hv;
    float rate = 1.f;
    if (p_.A_log != nullptr) {
      rate = expf(from_bits(load_bits(head_row(p_.A_log, p_.A_log_stride, head), p_.A_log_type),
                            p_.A_log_type));
    }
    float2 bias = make_float2(0.f, 0.f);
    if (p_.dt_bias != nullptr) {
      const int size = element_size(p_.dt_bias_type);
      const char* row = head_row(p_.dt_bias, p_.dt_bias_stride, head);
      bias = converted(load_pair_bits(row + place_.channel() * size, p_.dt_bias_type,
                                      p_.dt_bias_unit >= 2 * size),
                       p_.dt_bias_type);
    }
    float2 total = make_float2(1.f, 1.f);
    if (p_.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED) {
      constexpr float kLog2EOfOne = 1.4426950408889634f;
      const BoundedDecay decay{-rate * kLog2EOfOne, p_.lower_bound * kLog2EOfOne};
#pragma unroll 4
      for (int i = 0; i < kBlockTokens; ++i) {
        follow(i, total,
               [&](float2 x) { return make_float2(decay(x.x, bias.x), decay(x.y, bias.y)); });
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kBlockTokens; ++i) {
        follow(i, total, [&](float2 x) {
          return make_float2(alpha_of(p_, x.x, rate, bias.x), alpha_of(p_, x.y, rate, bias.y));
        });
      }
    }
    s_.total[place_.half][place_.pair()] = total;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ static float2 converted(uint2 bits, Element type) {
    return make_float2(from_bits(bits.x, type), from_bits(bits.y, type));
  }
  [[nodiscard]] __device__ __forceinline__ uint2& slot(int i) const {
    return reinterpret_cast<uint2&>(s_.decay[kBlockTokens * place_.half + i][place_.pair()]);
  }

  /// All requests before the first of them is waited for.
  __device__ __forceinline__ void load_gates() const {
    if (p_.gate.data == nullptr) return;
    const int size = element_size(p_.gate_type);
    const bool aligned = p_.gate_unit >= 2 * size;
    const char* from = token_row(p_.gate, 0, at_.first + kBlockTokens * place_.half, at_.hv) +
                       place_.channel() * size;
    const int count = at_.count - kBlockTokens * place_.half;
    uint2 bits[kBlockTokens];
    if (aligned && size == 2) {
#pragma unroll
      for (int i = 0; i < kBlockTokens; ++i) {
        bits[i].x = i < count ? *reinterpret_cast<const uint32_t*>(row(from, i)) : 0u;
      }
#pragma unroll
      for (int i = 0; i < kBlockTokens; ++i) {
        slot(i) = make_uint2(bits[i].x & 0xffffu, bits[i].x >> 16);
      }
      return;
    }
#pragma unroll 4
    for (int i = 0; i < kBlockTokens; ++i) {
      if (i < count) slot(i) = load_pair_bits(row(from, i), p_.gate_type, aligned);
    }
  }
  [[nodiscard]] __device__ __forceinline__ const char* row(const char* from, int i) const {
    return from + static_cast<uint64_t>(p_.gate.token) * static_cast<uint32_t>(i);
  }

  /// Tokens behind the end decay by 1.
  template <class F>
  __device__ __forceinline__ void follow(int i, float2& total, F&& decay_of) const {
    float2 alpha = make_float2(1.f, 1.f);
    if (kBlockTokens * place_.half + i < at_.count && p_.gate.data != nullptr) {
      alpha = decay_of(converted(slot(i), p_.gate_type));
    }
    s_.decay[kBlockTokens * place_.half + i][place_.pair()] = alpha;
    total = total * alpha;
  }

  const Params& p_;
  KdaPreparationStorage& s_;
  const ChunkPlace& at_;
  KdaPlace place_;
};

}  // namespace goldenrule::gpu::prefill
