// SPDX-License-Identifier: Apache-2.0
//
// alpha, beta and the L2 factor in fp32, with the accurate library functions (expf and log1pf
// within 2 ulp, division and square root correctly rounded): the kernels wait for memory, so
// accuracy is free here, and an error in one of these is common to a whole head or row.
//
// P is the parameters of any kernel group that names what is read here as goldenrule_gpu.h does.
#pragma once

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::gpu {

/// log(1 + e^(beta x)) / beta, and x itself beyond the threshold. The form max(y,0) + log1p(e^-|y|)
/// neither overflows (y > 88.7) nor loses the tail (log(1 + e^y) is 0 below -16.6).
__device__ __forceinline__ float softplus(float x, float beta, float threshold) {
  const float y = beta * x;
  const float sum = fmaxf(y, 0.f) + log1pf(expf(-fabsf(y)));
  const float soft = beta == 1.f ? sum : sum / beta;
  return y > threshold ? x : soft;
}

/// 1 / (1 + e^-x); e^-x = inf gives 0.
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

template <class P>
concept has_gate_rule = requires(const P& p) {
  p.gate_kind;
  p.softplus_beta;
  p.softplus_threshold;
  p.lower_bound;
};
template <class P>
concept has_beta_rule = requires(const P& p) {
  p.beta_kind;
};
template <class P>
concept has_norm_rule = requires(const P& p) {
  p.norm_kind;
  p.l2_eps;
};

/// log alpha where alpha is its exponential.
template <has_gate_rule P>
__device__ __forceinline__ float log_alpha_softplus(const P& p, float x, float rate,
                                                    float dt_bias) {
  return -rate * softplus(x + dt_bias, p.softplus_beta, p.softplus_threshold);
}
template <has_gate_rule P>
__device__ __forceinline__ float log_alpha_bounded(const P& p, float x, float rate, float dt_bias) {
  return p.lower_bound * sigmoid(rate * (x + dt_bias));
}

/// Calls f with alpha as a function of gate input x; `rate` = exp(A_log). One branch around as many
/// gates as f takes, which then wait for each other's latencies and not one after the other.
template <has_gate_rule P, class F>
__device__ __forceinline__ void with_gate(const P& p, float rate, float dt_bias, F&& f) {
  switch (p.gate_kind) {
    case GOLDENRULE_GPU_GATE_SOFTPLUS:
      f([&](float x) { return expf(log_alpha_softplus(p, x, rate, dt_bias)); });
      break;
    case GOLDENRULE_GPU_GATE_BOUNDED:
      f([&](float x) { return expf(log_alpha_bounded(p, x, rate, dt_bias)); });
      break;
    case GOLDENRULE_GPU_GATE_LOG:
      f([](float x) { return expf(x); });
      break;
    case GOLDENRULE_GPU_GATE_LOG2:
      f([](float x) { return exp2f(x); });
      break;
    case GOLDENRULE_GPU_GATE_LINEAR:
      f([](float x) { return x; });
      break;
    default:
      f([](float) { return 1.f; });
  }
}

/// alpha from gate input x.
template <has_gate_rule P>
__device__ __forceinline__ float alpha_of(const P& p, float x, float rate, float dt_bias) {
  float alpha = 1.f;
  with_gate(p, rate, dt_bias, [&](auto&& of) { alpha = of(x); });
  return alpha;
}

/// Its natural logarithm, as a ring keeps it: formed before alpha, so it holds where alpha is 0.
template <has_gate_rule P>
__device__ __forceinline__ float log_alpha_of(const P& p, float x, float rate, float dt_bias) {
  constexpr float kLog2 = 0.693147180559945309f;
  switch (p.gate_kind) {
    case GOLDENRULE_GPU_GATE_SOFTPLUS:
      return log_alpha_softplus(p, x, rate, dt_bias);
    case GOLDENRULE_GPU_GATE_BOUNDED:
      return log_alpha_bounded(p, x, rate, dt_bias);
    case GOLDENRULE_GPU_GATE_LOG:
      return x;
    case GOLDENRULE_GPU_GATE_LOG2:
      return x * kLog2;
    case GOLDENRULE_GPU_GATE_LINEAR:
      return logf(x);
    default:
      return 0.f;
  }
}

template <has_beta_rule P>
__device__ __forceinline__ float beta_of(const P& p, float x) {
  if (p.beta_kind == GOLDENRULE_GPU_BETA_DIRECT) return x;
  const float s = sigmoid(x);
  return p.beta_kind == GOLDENRULE_GPU_BETA_SIGMOID2 ? 2.f * s : s;
}

/// The factor that normalizes a vector with this sum of squares. One square root and one division
/// for all kinds: a choice of numbers, not of code.
template <has_norm_rule P>
__device__ __forceinline__ float norm_factor(const P& p, float sum_of_squares) {
  const auto is = [&](int kind) { return p.norm_kind == kind; };
  const float root =
      sqrtf(is(GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS) ? sum_of_squares + p.l2_eps : sum_of_squares);
  float norm = root;
  if (is(GOLDENRULE_GPU_NORM_MAX_NORM_EPS)) norm = fmaxf(root, p.l2_eps);
  if (is(GOLDENRULE_GPU_NORM_NORM_PLUS_EPS)) norm = root + p.l2_eps;
  return is(GOLDENRULE_GPU_NORM_NONE) ? 1.f : 1.f / norm;
}

}  // namespace goldenrule::gpu
