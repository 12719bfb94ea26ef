// SPDX-License-Identifier: Apache-2.0
//
// The elementwise functions of the rule: gate, beta and norm, generic over the scalar. Each gate
// form is one function here; the bounds beside the values are derived in lane.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/convention.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::delta {

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

/// A product of two numbers of which one may be infinite; 0 silences it.
[[nodiscard]] inline double weighted(double x, double y) {
  return x == 0.0 || y == 0.0 ? 0.0 : x * y;
}

inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// The absolute error of a product of size `size` with that relative error. What overflows to
/// infinity is infinite, whatever its last digits; an error that is not known stays so.
[[nodiscard]] inline double product_error(double size, double relative) {
  if (relative > 0.5) return kUnknown;
  return std::isinf(size) ? 0.0 : weighted(size, relative);
}

/// log(softplus(x)) for every x. Below -200 it is x: what is left out is exp(x) / 2 < 2^-288.
template <class S>
[[nodiscard]] S log_softplus(const S& x) {
  return x < S(-200) ? x : scalar::log(softplus(x));
}

/// alpha = exp(log alpha) of one channel, and what the bounds need to know of it.
template <class S>
struct GateValue {
  S alpha = S(1);
  S g = S(0);                   ///< log alpha where a formula gives it
  double log_alpha = 0.0;       ///< not where alpha is given
  double log_error = 0.0;       ///< absolute error of log alpha; infinite: not known
  double softplus_slope = 0.0;  ///< |d log alpha / d softplus|
  double logit_slope = 0.0;     ///< |d log alpha / d ln(a + dt_bias)|
  bool at_most_one = false;     ///< the form gives 0 <= alpha <= 1 whatever the inputs
  bool exact = false;           ///< alpha was given, or is 1
};

/// A product exp(A) x of a gate form, formed so that finite inputs never give inf * 0: where a
/// factor leaves the range 2^+-900 it is exp(A + log |x|).
template <class S>
struct GateProduct {
  S value = S(0);
  S slope = S(0);               ///< exp(A)
  double relative_error = 0.0;  ///< infinite: not known
};

/// `x_error` is the relative error of x; `log_x` gives log |x|.
template <class S, class F>
[[nodiscard]] GateProduct<S> gate_product(double A, const S& x, double x_error, F&& log_x) {
  using scalar::to_double;
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  const auto in_range = [](double y) { return std::fabs(y) > 0x1p-900 && std::fabs(y) < 0x1p900; };
  GateProduct<S> product{.value = x, .slope = scalar::exp(S(A)), .relative_error = 0.0};
  if (in_range(to_double(product.slope)) && in_range(to_double(x))) {
    product.value = product.slope * x;
    product.relative_error = x_error + f + u;
    return product;
  }
  const bool limit = x == S(0) || std::isinf(to_double(x));  // 0 and inf are so for every finite A
  if (limit && std::isfinite(A)) return product;
  const S log_of_x = log_x();
  const S magnitude = scalar::exp(S(A) + log_of_x);
  product.value = x < S(0) ? S(-magnitude) : magnitude;
  if (std::isinf(A) || std::isinf(to_double(log_of_x))) return product;
  const double size = std::fabs(A) + std::fabs(to_double(log_of_x));
  const double error = x_error + (f + 2 * u) * size;
  product.relative_error = error <= 0.25 ? std::expm1(error) + f : kUnknown;
  return product;
}

/// alpha = exp(-exp(A_log) softplus(a + dt_bias)).
template <class S>
[[nodiscard]] GateValue<S> softplus_gate(const call::Convention& c, double x, double A_log,
                                         double dt_bias) {
  using scalar::to_double;
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  GateValue<S> result;
  const S logit = S(x) + S(dt_bias);
  const S z = S(c.softplus_beta) * logit;
  const double z_double = to_double(z);
  const bool linear = z > S(c.softplus_threshold);
  // Far below zero softplus leaves the range of double: its logarithm stands in for it.
  const bool tiny = !linear && z_double < -200.0 && std::isfinite(z_double);
  const S sp = linear ? logit : S(softplus(z) / S(c.softplus_beta));
  const auto log_sp = [&]() -> S {
    if (linear) return scalar::log(logit < S(0) ? S(-logit) : logit);
    return log_softplus(z) - scalar::log(S(c.softplus_beta));
  };
  const double reach = 1 + std::max(-z_double, 0.0);  // |d ln softplus / d ln z|, 2u of z
  const double sp_error = linear ? u : 2 * u * reach + 2 * f + 4 * u;
  const GateProduct<S> m = gate_product<S>(A_log, tiny ? S(0x1p-1000) : sp, sp_error, log_sp);
  const S g = -m.value;
  result.g = g;
  result.alpha = scalar::exp(g);
  result.log_alpha = to_double(g);
  result.log_error = product_error(std::fabs(result.log_alpha), m.relative_error);
  result.at_most_one = c.softplus_threshold >= 0.0;
  result.softplus_slope = to_double(m.slope);
  // d ln softplus / d ln z = z sigmoid(z) / softplus(z): 1 far above zero, |z| far below.
  const double bend = linear              ? 1.0
                      : z_double < -200.0 ? -z_double
                                          : std::fabs(z_double) * sigmoid(z_double) /
                                                (c.softplus_beta * to_double(sp));
  result.logit_slope = weighted(std::fabs(result.log_alpha), bend);
  return result;
}

/// alpha = exp(lower_bound sigmoid(exp(A_log) (a + dt_bias))).
template <class S>
[[nodiscard]] GateValue<S> bounded_gate(const call::Convention& c, double x, double A_log,
                                        double dt_bias) {
  using scalar::to_double;
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  GateValue<S> result;
  const S logit = S(x) + S(dt_bias);
  const GateProduct<S> z = gate_product<S>(
      A_log, logit, u, [&] { return scalar::log(logit < S(0) ? S(-logit) : logit); });
  const S g = S(c.lower_bound) * sigmoid(z.value);
  const double size = std::fabs(to_double(z.value));
  result.g = g;
  result.alpha = scalar::exp(g);
  result.log_alpha = to_double(g);
  // |d sigmoid / dz| <= exp(-|z|), and z is off by at most its relative error r.
  const double r = z.relative_error;
  const double moved =
      r <= 0.5 ? std::min(weighted(std::exp(-size * (1 - r)), size * r), 1.0) : 1.0;
  result.log_error =
      std::fabs(c.lower_bound) * (moved + 0x1p-1074) + std::fabs(result.log_alpha) * (f + 4 * u);
  result.at_most_one = c.lower_bound <= 0.0;
  result.logit_slope =
      weighted(std::fabs(result.log_alpha), weighted(sigmoid(-to_double(z.value)), size));
  return result;
}

/// `x` is a (softplus, bounded) or g (log, log2, linear); `A_log` and `dt_bias` where the gate
/// reads them.
template <class S>
[[nodiscard]] GateValue<S> gate(const call::Convention& c, double x, double A_log, double dt_bias) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  GateValue<S> result;
  switch (c.gate) {
    case call::Gate::kSoftplus:
      return softplus_gate<S>(c, x, A_log, dt_bias);
    case call::Gate::kBounded:
      return bounded_gate<S>(c, x, A_log, dt_bias);
    case call::Gate::kLog:
      result.alpha = scalar::exp(S(x));
      result.log_alpha = x;
      return result;
    case call::Gate::kLog2:
      result.alpha = scalar::exp2(S(x));
      result.log_alpha = x * 0.6931471805599453;
      result.log_error =
          product_error(std::fabs(result.log_alpha), 2 * u);  // g * ln 2 where the tier forms it
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

/// |alpha - exact|, the error of exp included. With E the error of log alpha it is at most
/// alpha (e^E - 1); where alpha is 0 or E is no small number the form's range bounds it. Underflow
/// adds an absolute term.
template <class S>
[[nodiscard]] double alpha_error(const GateValue<S>& value) {
  using Tier = scalar::Tier<S>;
  if (value.exact) return 0.0;
  const double alpha = std::fabs(scalar::to_double(value.alpha));
  const double E = value.log_error;
  const double underflow = 0x1p-1070 + Tier::kUnderflow;
  double error = 0.0;
  if (alpha == 0.0) {
    // log alpha <= -745, or minus infinity: what may have been lost is exp(log alpha + E).
    error = std::isinf(value.log_alpha) && E == 0.0 ? 0.0 : std::exp(E + value.log_alpha);
  } else {
    error = E <= 0.5 ? alpha * (std::expm1(E) + Tier::kFunctionError) : kUnknown;
  }
  return value.at_most_one && !std::isnan(error) ? std::min(error + underflow, 1.0)
                                                 : error + underflow;
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

/// The divisor of q and k: from the sum of squares of x / unit, n^2 / unit^2.
template <class S>
[[nodiscard]] S norm_divisor(const call::Convention& c, const S& sum_of_squares,
                             const S& unit = S(1)) {
  const S eps(c.l2_eps);
  switch (c.qk_l2norm) {
    case call::QkNorm::kNone:
      return S(1);
    case call::QkNorm::kRsqrtSumEps:
      return unit * scalar::square_root(S(sum_of_squares + eps / unit / unit));
    case call::QkNorm::kMaxNormEps: {
      const S n = unit * scalar::square_root(sum_of_squares);
      return n < eps ? eps : n;
    }
    case call::QkNorm::kNormPlusEps:
      return unit * scalar::square_root(sum_of_squares) + eps;
  }
  return S(1);
}

}  // namespace goldenrule::delta
