// SPDX-License-Identifier: Apache-2.0
//
// The rule by its two-pass form: all scores and their maximum m, then
//
//   p_t = exp(s_t - m),   l = sum p_t,   o = sum p_t v_t / l,   lse = m + log l,
//
// sums by tiles of 64 keys. Masked keys are left out of the sums, so there is no arithmetic with
// -inf. A NaN or Inf in a visible q or k makes its rows what IEEE arithmetic makes of them, in a
// visible v its column, and nothing else.
//
// The certificate, a bound on |computed - exact| of every element. u and f are the unit roundoff
// and the function error of the tier, gamma_n = n u / (1 - n u), inputs and the scale are exact.
//
// Scores. A dot product of K terms in any order errs by gamma_K sum |q_d k_d|, the factor scale
// adds one rounding, and Cauchy-Schwarz bounds the sum:
//
//   |s^_t - s_t| <= e_t = gamma_{K+2} |scale| ||q|| ||k_t|| + an underflow per operation.
//
// Soft cap. tanh x = (1 - e) / (1 + e), e = exp(-2 |x|), errs absolutely by 2f + 4u, as |tanh| <= 1
// and e <= 1: the exponential's error is f e in the numerator and at most f e / 2 in the quotient,
// and there are four operations. The slope of cap tanh(s / cap) is at most 1, so e_t is carried on,
// the rounding of s / cap adds u |s|, the product with cap another u:
//
//   e_t <- e_t + u |s^_t| + cap (2f + 5u).
//
// (A bound by (f + 3u)|s'| would need a tanh of small relative error at 0, which this is not.)
//
// Weights. The computed maximum m^ is one number for all keys, so it cancels exactly:
//
//   p^_t = exp(s_t - m^) exp(eta_t),   |eta_t| <= E_t = e_t + u |s^_t - m^| + 2f.
//
// With exact weights w_t and those of p^, w~_t = p^_t / sum p^, the weighted mean o~ of the p^ is
//
//   o~ - o = sum_t w~_t (1 - exp(-eta_t)) (v_t - o),
//
// since sum_t w_t (v_t - o) = 0: an error that is common to all keys cancels. For a = max E_t
// <= 2^-8, |1 - exp(-eta)| <= E (1 + a), and |v_t - o| <= |v_t - o^| + |o^ - o| gives
//
//   (1 - a (1 + a)) |o^ - o| <= (1 + a) sum_t w~_t E_t |v_t - o^| + |o^ - o~|
//
// The sums run over at most n' = 64 + number of tiles additions; products and the quotient round:
//
//   |o^ - o~| <= gamma_{n'+1} sum_t w~_t |v_t| + (gamma_{n'} + 2u) |o^| + n 2^-1070 max |v|.
//
// The last term is what exp and products lose where they underflow: less than 2^-1070 for each key
// against l >= 1. Factors: (1 + a) / (1 - a (1 + a)) <= 1.0079, and tau = 2^-6 leaves as much again
// for w^ in the place of w~, products of small terms, and the double arithmetic of the bound:
//
//   |o^ - o| <= (1 + tau) [ sum_t w^_t E_t |v_t - o^| + gamma_{n'+1} sum_t w^_t |v_t|
//                           + (gamma_{n'} + 2u) |o^| ] + n 2^-1070 max |v|
//   |lse^ - lse| <= (1 + tau) [ sum_t w^_t E_t + gamma_{n'} + f |log l^| + u |lse^| ] + n 2^-1070
//
// The second since lse~ - lse = log sum_t w_t exp(eta_t) and m^ itself has no error. To base 2 all
// of it is multiplied by log2(e), whose quotient and product add (f + 3u) |lse^|. Where a is above
// 2^-8 the radius is infinite, and the tier has to be widened. Rounding a wider tier's result to
// double adds 2^-53 of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/attention/plan/plan.hpp"
#include "reference/attention/rule/tile.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::attention {

/// One query and query head: row `query` of the request.
struct RowPlace {
  std::int64_t query = 0, head = 0;
};

/// What the rule makes of a row. Without a visible key o and lse are empty.
template <class S>
struct RowValue {
  bool has_keys = false;
  std::vector<S> o;
  S lse{};  ///< in the base of the plan
  /// Bounds before the result is rounded to double; empty without a certificate. 0 where the exact
  /// result is not finite because an input is not.
  std::vector<double> radius;
  double lse_radius = 0.0;
  std::vector<double> largest;  ///< per column the largest visible |v|, with a certificate
};

template <class S>
using RowValues = std::vector<RowValue<S>>;
using RowPlaces = std::span<const RowPlace>;

/// Rows of one request whose query heads read one key head; they are computed on together, and none
/// depends on the others but by the tiles of its sums.
template <class S>
[[nodiscard]] RowValues<S> two_pass(const Tensors& tensors, const Plan& plan,
                                    const Request& request, RowPlaces rows, bool certify);

extern template RowValues<double> two_pass(const Tensors&, const Plan&, const Request&, RowPlaces,
                                           bool);
extern template RowValues<scalar::Quad> two_pass(const Tensors&, const Plan&, const Request&,
                                                 RowPlaces, bool);
extern template RowValues<scalar::Multi> two_pass(const Tensors&, const Plan&, const Request&,
                                                  RowPlaces, bool);

/// scale <q, k>, soft-capped, in scalars: IEEE arithmetic in every tier.
template <class S>
[[nodiscard]] S score_of(const Plan& plan, std::span<const double> q, const double* k);

/// cap tanh(s / cap)
template <class S>
[[nodiscard]] S soft_capped(const S& s, double cap) {
  if (cap == 0.0) return s;
  const S x = s / S(cap);
  const bool negative = x < S(0.0);
  const S a = negative ? -x : x;
  const S e = scalar::exp(-(a + a));
  const S y = S(cap) * ((S(1.0) - e) / (S(1.0) + e));
  return negative ? -y : y;
}

/// What the cap leaves of an error `e` of a product: at most e times the steepest slope on its way,
/// 1 - tanh^2 where it is nearest to 0, and never more than from one end to the other.
[[nodiscard]] inline double soft_capped_error(double e, double product, double cap) {
  if (!(cap > 0.0)) return e;
  const double tanh = std::tanh(std::max(std::fabs(product) - e, 0.0) / cap);
  return std::min(e * (1.0 - tanh * tanh), 2.0 * cap);
}

template <class S>
S score_of(const Plan& plan, std::span<const double> q, const double* k) {
  S sum(0.0);
  for (std::size_t d = 0; d < q.size(); ++d) sum += S(q[d]) * S(k[d]);
  return soft_capped(S(plan.scale) * sum, plan.soft_cap);
}

}  // namespace goldenrule::attention
