// SPDX-License-Identifier: Apache-2.0
//
// From the quantities of a lane to the tensors of the call: how log alpha, beta and the norm depend
// on what is given. sigma(-z) stands for 1 - sigma(z): nothing cancels where a gate saturates.
//
//   softplus  g = -E sp(x), x = a + dt_bias, E = exp(A_log):  dg/da = -E sigma(b x), -E beyond the
//             threshold;  dg/dA_log = g
//   bounded   g = lb sigma(z), z = E x:  dg/da = lb E sigma(z) sigma(-z);  dg/dA_log = z times
//             lb sigma(z) sigma(-z)
//   log       1;   log2  ln 2;   linear  the gradient is by alpha itself
//   sigmoid   dbeta/db = sigma(b) sigma(-b), sigmoid2 twice that
//
// In a chain 0 times infinity is 0: a gate that is saturated hands nothing on.
//
// Errors, to first order, u and F of the tier. |d ln sigma(z) / dz| = sigma(-z) <= 1 and |d ln
// sigma(z) sigma(-z) / dz| <= 1, so an absolute error e of z moves either by e relatively; sigma
// itself errs by F + 4u, its product with the other by 2F + 9u.
//
// Norms. y = x / D(n), n = |x|_2, so dx_i = (dy_i - y_i (y^ . dy)) / D with y^ = x / n where D = n,
// n + eps (norm_plus_eps, max_norm_eps above eps), and y where D = sqrt(n^2 + eps): there the
// projection is by y itself, y^ = y. D errs by (K/2 + 4) u as in lane.hpp. With R a bound on the
// error of every dy,
//
//   |D dx_i| <= [ R (1 + |y_i| sum |y^_l|) + (gamma_K + (2 K + 20) u) (|dy_i| + |y_i| sum |y^_l
//   dy_l|) ] / D.
//
// At the n = eps of max_norm_eps, as far as the tier can tell, there is no derivative: unbounded.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/delta/rule/gate.hpp"

namespace goldenrule::backward {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();
inline constexpr double kSecondOrder = 1.0 + 0x1p-6;

/// A derivative and its relative error.
template <class S>
struct Slope {
  S value = S(1);
  double error = 0.0;
};

/// x y, where 0 silences an infinity.
template <class S>
[[nodiscard]] S silenced(const S& x, const S& y) {
  return x == S(0) || y == S(0) ? S(0) : S(x * y);
}

/// How log alpha (alpha where it is given) depends on the gate's input and on A_log.
template <class S>
struct GateSlopes {
  Slope<S> input, amplitude;
};

namespace detail {

template <class S>
[[nodiscard]] S log_sigmoid(const S& z) {
  return -delta::softplus(S(-z));
}

template <class S>
[[nodiscard]] GateSlopes<S> softplus_slopes(const call::Convention& c, double x, double A_log,
                                            double dt_bias) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  const S z = S(c.softplus_beta) * (S(x) + S(dt_bias));
  const bool linear = z > S(c.softplus_threshold);
  const S slope = linear ? S(1) : delta::sigmoid(z);
  const double z_error = 2 * u * std::fabs(scalar::to_double(z));
  const double error = linear ? 0.0 : z_error + f + 4 * u;
  const auto product = delta::gate_product<S>(
      A_log, slope, error, [&]() -> S { return linear ? S(0) : log_sigmoid(z); });
  const delta::GateValue<S> gate = delta::softplus_gate<S>(c, x, A_log, dt_bias);
  const double g = std::fabs(gate.log_alpha);
  return {{S(-product.value), product.relative_error + u},
          {gate.g, g == 0.0 ? 0.0 : gate.log_error / g}};
}

template <class S>
[[nodiscard]] GateSlopes<S> bounded_slopes(const call::Convention& c, double x, double A_log,
                                           double dt_bias) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  constexpr double f = scalar::Tier<S>::kFunctionError;
  const S logit = S(x) + S(dt_bias);
  const auto z = delta::gate_product<S>(
      A_log, logit, u, [&]() -> S { return scalar::log(logit < S(0) ? S(-logit) : logit); });
  const S curve = delta::sigmoid(z.value) * delta::sigmoid(S(-z.value));
  const double moved = delta::weighted(std::fabs(scalar::to_double(z.value)), z.relative_error);
  const double error = moved + 2 * f + 9 * u;
  const auto product = delta::gate_product<S>(
      A_log, curve, error, [&]() -> S { return log_sigmoid(z.value) + log_sigmoid(S(-z.value)); });
  const S bound(c.lower_bound);
  return {{silenced<S>(bound, product.value), product.relative_error + u},
          {silenced<S>(z.value, silenced<S>(bound, curve)), error + z.relative_error + 2 * u}};
}

}  // namespace detail

/// `x` is a or g of the channel.
template <class S>
[[nodiscard]] GateSlopes<S> gate_slopes(const call::Convention& c, double x, double A_log,
                                        double dt_bias) {
  switch (c.gate) {
    case call::Gate::kSoftplus:
      return detail::softplus_slopes<S>(c, x, A_log, dt_bias);
    case call::Gate::kBounded:
      return detail::bounded_slopes<S>(c, x, A_log, dt_bias);
    case call::Gate::kLog2:
      return {{scalar::log(S(2)), scalar::Tier<S>::kFunctionError}, {S(0), 0.0}};
    case call::Gate::kLog:
    case call::Gate::kLinear:
    case call::Gate::kNone:
      break;
  }
  return {};
}

/// How beta depends on its input.
template <class S>
[[nodiscard]] Slope<S> beta_slope(call::BetaForm form, double b) {
  if (form == call::BetaForm::kDirect) return {};
  const S curve = delta::sigmoid(S(b)) * delta::sigmoid(S(-b));
  const double error = 2 * scalar::Tier<S>::kFunctionError + 10 * scalar::Tier<S>::kUnitRoundoff;
  return {form == call::BetaForm::kSigmoid2 ? S(2) * curve : curve, error};
}

/// The gradient by x of a row x [K] from that by norm(x), each element of which is off by at most
/// `radius`; returns the bounds in `radii`.
template <class S>
void norm_adjoint(const call::Convention& c, const double* x, const S* dy, std::int64_t K,
                  double radius, S* dx, double* radii) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  if (c.qk_l2norm == call::QkNorm::kNone) {
    for (std::int64_t i = 0; i < K; ++i) {
      dx[i] = dy[i];
      radii[i] = radius;
    }
    return;
  }
  S sum(0);
  for (std::int64_t i = 0; i < K; ++i) sum += S(x[i]) * S(x[i]);
  const S divisor = delta::norm_divisor(c, sum);
  const S norm = scalar::square_root(sum);
  const double n = scalar::to_double(norm);
  const bool inside = c.qk_l2norm == call::QkNorm::kRsqrtSumEps;
  const bool is_max = c.qk_l2norm == call::QkNorm::kMaxNormEps;
  const double of_divisor = (static_cast<double>(K) / 2 + 4) * u;
  // Below eps, and at x = 0, the divisor is a constant.
  const bool constant = n == 0.0 || (is_max && n <= c.l2_eps);
  const bool undecided = is_max && n != 0.0 && std::fabs(n - c.l2_eps) <= 2 * of_divisor * n;
  S projection(0);
  double sum_of_units = 0.0;
  double sum_of_terms = 0.0;
  for (std::int64_t i = 0; i < K && !constant; ++i) {
    const S unit = S(x[i]) / (inside ? divisor : norm);
    projection += unit * dy[i];
    const double size = std::fabs(scalar::to_double(unit));
    sum_of_units += size;
    sum_of_terms += size * std::fabs(scalar::to_double(dy[i]));
  }
  const double rounding = (3.0 * static_cast<double>(K) + 24) * u;
  const double D = std::fabs(scalar::to_double(divisor));
  for (std::int64_t i = 0; i < K; ++i) {
    const S y = S(x[i]) / divisor;
    dx[i] = (constant ? dy[i] : S(dy[i] - y * projection)) / divisor;
    const double size = std::fabs(scalar::to_double(y));
    const double moved = radius * (1.0 + size * sum_of_units) +
                         rounding * (std::fabs(scalar::to_double(dy[i])) + size * sum_of_terms);
    radii[i] = undecided ? kUnbounded : moved / D * kSecondOrder + scalar::Tier<S>::kUnderflow;
  }
}

/// What the norm divides a row by, in double.
[[nodiscard]] inline double norm_size(const call::Convention& c, const std::vector<double>& x,
                                      std::int64_t K) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < K; ++i) {
    sum += x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i)];
  }
  return delta::norm_divisor<double>(c, sum);
}

}  // namespace goldenrule::backward
