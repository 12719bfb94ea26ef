// SPDX-License-Identifier: Apache-2.0
//
// Prepares tokens for a block: q^, k^, alpha, beta and its rows of v, as fp32 in shared memory,
// while the loads of the state are in flight. Four tasks a token (k^; q^; alpha, beta and the slot;
// v), one warp each, so that a decode block of four warps waits for one memory latency.
//
// The sum of squares is taken in one order for every specialization: lane l adds channels 4l..4l+3
// of each 128, then lanes 16, 8, 4, 2, 1 apart.
#pragma once

#include "gpu/kernels/config.cuh"
#include "gpu/kernels/elements.cuh"
#include "gpu/kernels/gates.cuh"
#include "gpu/kernels/slots.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu {

/// Lifetime: written by prepare_tokens for up to kTC tokens, read until the block has done them;
/// a barrier on either side. Channels K..KP-1 are zero.
template <class C>
struct alignas(16) TokenStorage {
  float k[C::kTC][C::kKP];
  float q[C::kTC][C::kKP];
  float alpha[C::kTC][C::kChannelGate ? C::kKP : 1];
  float v[C::kTC][C::kRows];
  float beta[C::kTC];
  int64_t slot[C::kTC];  // scatter form: where the state after this token goes, or kNoSlot
};

/// Heads of a block.
struct Heads {
  int b, hv, h;
};

__device__ __forceinline__ int64_t token_offset(const TokenView& x, int b, int t, int head) {
  return static_cast<int64_t>(b) * x.row + static_cast<int64_t>(t) * x.token +
         static_cast<int64_t>(head) * x.head;
}

inline constexpr int kTasksPerToken = 4;
inline constexpr int kSpan = 4 * kWarp;  // channels that a warp covers four at a time

template <class C>
__device__ __forceinline__ void prepare_vector(const Params& p, const TokenView& view, Element type,
                                               int64_t at, float scale, float* out) {
  constexpr int kSpans = (C::kKP + kSpan - 1) / kSpan;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float4 x[kSpans];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    const int channel = i * kSpan + 4 * lane;
    x[i] = load_four(view.data, type, at + channel, p.K - channel, p.vector_qk != 0);
  }
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    sum = fmaf(x[i].x, x[i].x, sum);
    sum = fmaf(x[i].y, x[i].y, sum);
    sum = fmaf(x[i].z, x[i].z, sum);
    sum = fmaf(x[i].w, x[i].w, sum);
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float factor = norm_factor(p, sum);
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    const int channel = i * kSpan + 4 * lane;
    if (channel < C::kKP) {
      *reinterpret_cast<float4*>(out + channel) =
          make_float4(x[i].x * factor * scale, x[i].y * factor * scale, x[i].z * factor * scale,
                      x[i].w * factor * scale);
    }
  }
}

template <class C>
__device__ __forceinline__ void prepare_gate(const Params& p, Heads heads, int t, int token,
                                             TokenStorage<C>& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int gate_head = p.gate_by_qk_head ? heads.h : heads.hv;
  const int64_t at = token_offset(p.gate, heads.b, t, heads.hv);
  const int64_t bias_at = static_cast<int64_t>(gate_head) * p.dt_bias_stride;
  if (lane == 0) {
    to.beta[token] = beta_of(
        p, load_element(p.beta.data, p.beta_type, token_offset(p.beta, heads.b, t, heads.hv)));
    to.slot[token] = p.ssm_state_indices != nullptr && p.disable_state_update == 0
                         ? ssm_slot(p, heads.b, t)
                         : kNoSlot;
  }
  float rate = 1.f;
  if (p.A_log != nullptr) {
    rate =
        expf(load_element(p.A_log, p.A_log_type, static_cast<int64_t>(gate_head) * p.A_log_stride));
  }
  if (!p.channel_gate) {
    float x = 0.f, bias = 0.f;
    if (p.gate.data != nullptr) x = load_element(p.gate.data, p.gate_type, at);
    if (p.dt_bias != nullptr) bias = load_element(p.dt_bias, p.dt_bias_type, bias_at);
    const float alpha = alpha_of(p, x, rate, bias);
    if constexpr (C::kChannelGate) {
      for (int channel = lane; channel < C::kKP; channel += kWarp) {
        to.alpha[token][channel] = channel < p.K ? alpha : 0.f;
      }
    } else if (lane == 0) {
      to.alpha[token][0] = alpha;
    }
    return;
  }
  if constexpr (C::kChannelGate) {
    for (int channel = 4 * lane; channel < C::kKP; channel += kSpan) {
      const int valid = p.K - channel;
      float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
      float4 bias = x;
      if (p.gate.data != nullptr) {
        x = load_four(p.gate.data, p.gate_type, at + channel, valid, p.vector_gate != 0);
      }
      if (p.dt_bias != nullptr) {
        bias = load_four(p.dt_bias, p.dt_bias_type, bias_at + channel, valid, p.vector_gate != 0);
      }
      float* out = &to.alpha[token][channel];
      out[0] = valid > 0 ? alpha_of(p, x.x, rate, bias.x) : 0.f;
      out[1] = valid > 1 ? alpha_of(p, x.y, rate, bias.y) : 0.f;
      out[2] = valid > 2 ? alpha_of(p, x.z, rate, bias.z) : 0.f;
      out[3] = valid > 3 ? alpha_of(p, x.w, rate, bias.w) : 0.f;
    }
  }
}

/// Tokens first..first+count-1 of row heads.b; `row0` is the first value row of the block.
template <class C>
__device__ __forceinline__ void prepare_tokens(const Params& p, Heads heads, int first, int count,
                                               int row0, TokenStorage<C>& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int task = static_cast<int>(threadIdx.x) / kWarp; task < count * kTasksPerToken;
       task += C::kWarps) {
    const int token = task / kTasksPerToken;
    const int t = first + token;
    switch (task % kTasksPerToken) {
      case 0:
        prepare_vector<C>(p, p.k, p.k_type, token_offset(p.k, heads.b, t, heads.h), 1.f,
                          to.k[token]);
        break;
      case 1:
        prepare_vector<C>(p, p.q, p.q_type, token_offset(p.q, heads.b, t, heads.h), p.scale,
                          to.q[token]);
        break;
      case 2:
        prepare_gate<C>(p, heads, t, token, to);
        break;
      default: {
        const int64_t at = token_offset(p.v, heads.b, t, heads.hv) + row0;
        for (int row = lane; row < C::kRows; row += kWarp) {
          to.v[token][row] =
              C::kExact || row0 + row < p.V ? load_element(p.v.data, p.v_type, at + row) : 0.f;
        }
      }
    }
  }
}

}  // namespace goldenrule::gpu
