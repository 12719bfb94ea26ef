// SPDX-License-Identifier: Apache-2.0
//
// The elementwise functions of the rule: gate, beta and norm, generic over the scalar. Each gate
// form is one function here; the bounds beside the values are derived in lane.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "fixtures/call/convention.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::rule {

/// log(1 + exp(x)) for every x: neither branch overflows nor cancels.
template <class S>
[[nodiscard]] S softplus(const S& x) {
  return x > S(0) ? S(x + scalar::log1p(scalar::exp(S(-x)))) : scalar::log1p(scalar::exp(x));
}

/// 1 / (1 + exp(-x)) for every x, accurate relative to its value.
template <class S>
[[nodiscard]] S sigmoid(const S& x) {
  if (x >= S(0)) return S(1) / (S(1) + scalar::exp(S(-x)));
  const S e = scalar::exp(x);
  return e / (S(1) + e);
}

template <class S>
struct GateValue {
  S alpha = S(1);
  double log_alpha = 0.0;       ///< |log alpha|
  double log_error = 0.0;       ///< relative error of log alpha
  double softplus_slope = 0.0;  ///< |d log alpha / d softplus|
  double logit_slope = 0.0;     ///< |d log alpha / d ln(a + dt_bias)|
  bool exact = false;           ///< alpha was given, or is 1
};

/// `x` is a (softplus, bounded) or g (log, log2, linear); `A_log` and `dt_bias` where the gate
/// reads them.
template <class S>
[[nodiscard]] GateValue<S> gate(const call::Convention& c, double x, double A_log, double dt_bias) {
  using scalar::to_double;
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  GateValue<S> result;
  switch (c.gate) {
    case call::Gate::kSoftplus: {
      const S logit = S(x) + S(dt_bias);
      const S z = S(c.softplus_beta) * logit;
      const S sp = z > S(c.softplus_threshold) ? logit : S(softplus(z) / S(c.softplus_beta));
      const S slope = scalar::exp(S(A_log));
      const S g = -(slope * sp);
      result.alpha = scalar::exp(g);
      result.log_alpha = std::fabs(to_double(g));
      result.log_error = 2 * u * (1 + std::max(-to_double(z), 0.0)) + 3 * f + 5 * u;
      result.softplus_slope = to_double(slope);
      result.logit_slope = to_double(slope) * sigmoid(to_double(z)) * std::fabs(to_double(logit));
      return result;
    }
    case call::Gate::kBounded: {
      const S z = scalar::exp(S(A_log)) * (S(x) + S(dt_bias));
      const S g = S(c.lower_bound) * sigmoid(z);
      result.alpha = scalar::exp(g);
      result.log_alpha = std::fabs(to_double(g));
      result.log_error = std::fabs(to_double(z)) * (f + 2 * u) + f + 4 * u;
      result.logit_slope =
          std::fabs(to_double(g)) * sigmoid(-to_double(z)) * std::fabs(to_double(z));
      return result;
    }
    case call::Gate::kLog:
      result.alpha = scalar::exp(S(x));
      result.log_alpha = std::fabs(x);
      return result;
    case call::Gate::kLog2:
      result.alpha = scalar::exp2(S(x));
      result.log_alpha = std::fabs(x) * 0.6931471805599453;
      result.log_error = 2 * u;  // g * ln 2 where the tier forms it
      return result;
    case call::Gate::kLinear:
      result.alpha = S(x);
      result.exact = true;
      return result;
    case call::Gate::kNone:
      result.exact = true;
      return result;
  }
  return result;
}

template <class S>
[[nodiscard]] S beta_value(call::BetaForm form, double x) {
  switch (form) {
    case call::BetaForm::kSigmoid:
      return sigmoid(S(x));
    case call::BetaForm::kSigmoid2:
      return S(2) * sigmoid(S(x));
    case call::BetaForm::kDirect:
      return S(x);
  }
  return S(x);
}

/// The divisor of q and k: from n^2, the sum of squares.
template <class S>
[[nodiscard]] S norm_divisor(const call::Convention& c, const S& sum_of_squares) {
  const S eps(c.l2_eps);
  switch (c.qk_l2norm) {
    case call::QkNorm::kNone:
      return S(1);
    case call::QkNorm::kRsqrtSumEps:
      return scalar::square_root(S(sum_of_squares + eps));
    case call::QkNorm::kMaxNormEps: {
      const S n = scalar::square_root(sum_of_squares);
      return n < eps ? eps : n;
    }
    case call::QkNorm::kNormPlusEps:
      return scalar::square_root(sum_of_squares) + eps;
  }
  return S(1);
}

}  // namespace goldenrule::rule
