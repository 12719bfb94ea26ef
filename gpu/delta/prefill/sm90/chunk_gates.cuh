// SPDX-License-Identifier: Apache-2.0
//
// Gates and beta of a chunk. With l_t = log2 |alpha_t| and G_i = l_1 + .. + l_i, everything that a
// chunk multiplies by is 2^(G_i - G_j), so G must be good to a small part of one, however large it
// is: gates of -2600 a token add up to 2e5 over a chunk, where an fp32 number is good to .016, an
// error of one per cent. So G is summed in fp64 and kept as two fp32 terms. A difference of such
// pairs, (h_i - h_j) + (t_i - t_j), errs by 2^-23 of itself, as the terms are exact.
//
// Decays below 2^-160, 0 among them, count as 2^-4096: every product across them is 0, and
// differences behind them stay exact. The sign of a linear gate is carried apart: the product of
// signs s_i = sign(alpha_1 .. alpha_i) goes into the norm factors of q and k, and cancels where no
// negative gate lies between.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/common/gates.cuh"
#include "gpu/delta/prefill/sm90/chunks.cuh"
#include "gpu/delta/prefill/sm90/gdn_storage.cuh"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/ptx/functions.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLeastLog2 = -160.;  ///< below: nothing is left in fp32
inline constexpr double kErased = -4096.;

/// log2 |alpha|; alpha_of in common/gates.cuh is its exponential.
__device__ __forceinline__ double log2_decay(const Params& p, float x, float rate, float dt_bias) {
  double l = 0.;
  switch (p.gate_kind) {
    case GOLDENRULE_GPU_GATE_SOFTPLUS:
      l = static_cast<double>(-rate *
                              softplus(x + dt_bias, p.softplus_beta, p.softplus_threshold)) *
          kLog2E;
      break;
    case GOLDENRULE_GPU_GATE_BOUNDED:
      l = static_cast<double>(p.lower_bound * sigmoid(rate * (x + dt_bias))) * kLog2E;
      break;
    case GOLDENRULE_GPU_GATE_LOG:
      l = static_cast<double>(x) * kLog2E;
      break;
    case GOLDENRULE_GPU_GATE_LOG2:
      l = static_cast<double>(x);
      break;
    case GOLDENRULE_GPU_GATE_LINEAR:
      l = static_cast<double>(log2f(fabsf(x)));
      break;
    default:
      break;
  }
  return l < kLeastLog2 ? kErased : l;  // NaN stays
}

/// 2^(G_i - G_j).
__device__ __forceinline__ float decay_between(float2 i, float2 j) {
  return ptx::exp2_approximate((i.x - j.x) + (i.y - j.y));
}
__device__ __forceinline__ float decay_from_start(float2 i) {
  return ptx::exp2_approximate(i.x + i.y);
}

/// Gates and beta of a chunk by one warp, two tokens per lane. Tokens behind the end decay by 1,
/// and their beta is 0.
__device__ __forceinline__ void make_inputs(const Params& p, const ChunkPlace& at, int lane,
                                            ChunkInputs& to) {
  const int head = p.gate_by_qk_head != 0 ? at.h : at.hv;
  float rate = 1.f, bias = 0.f;
  uint32_t gate[2] = {}, beta[2] = {};
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int token = 2 * lane + e;
    if (token >= at.count) continue;
    if (p.gate.data != nullptr) {
      gate[e] = load_bits(token_row(p.gate, 0, at.first + token, at.hv), p.gate_type);
    }
    beta[e] = load_bits(token_row(p.beta, 0, at.first + token, at.hv), p.beta_type);
  }
  if (p.A_log != nullptr) {
    rate = expf(
        from_bits(load_bits(head_row(p.A_log, p.A_log_stride, head), p.A_log_type), p.A_log_type));
  }
  if (p.dt_bias != nullptr) {
    bias = from_bits(load_bits(head_row(p.dt_bias, p.dt_bias_stride, head), p.dt_bias_type),
                     p.dt_bias_type);
  }
  double log[2];
  unsigned negative[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int token = 2 * lane + e;
    const bool inside = token < at.count;
    const float x = from_bits(gate[e], p.gate_type);
    log[e] = inside ? log2_decay(p, x, rate, bias) : 0.;
    negative[e] =
        __ballot_sync(kAllLanes, inside && p.gate_kind == GOLDENRULE_GPU_GATE_LINEAR && x < 0.f);
    to.beta[token] = inside ? beta_of(p, from_bits(beta[e], p.beta_type)) : 0.f;
  }
  double sum = log[0] + log[1];
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const double before = __shfl_up_sync(kAllLanes, sum, distance);
    sum += lane >= distance ? before : 0.;
  }
  double before = __shfl_up_sync(kAllLanes, sum, 1);
  if (lane == 0) before = 0.;
  const unsigned earlier = (1u << lane) - 1u;
  const unsigned with_this = earlier << 1 | 1u;
  const double g[2] = {before + log[0], before + log[0] + log[1]};
  const int even = __popc(negative[0] & with_this);
  const int minus[2] = {even + __popc(negative[1] & earlier),
                        even + __popc(negative[1] & with_this)};
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const auto first = static_cast<float>(g[e]);
    to.gate[2 * lane + e] =
        make_float2(first, static_cast<float>(g[e] - static_cast<double>(first)));
    to.sign[2 * lane + e] = (minus[e] & 1) != 0 ? -1.f : 1.f;
  }
}

}  // namespace goldenrule::gpu::prefill
