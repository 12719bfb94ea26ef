// SPDX-License-Identifier: Apache-2.0
//
// A lane is one (sequence, value head): the unit in which the delta rule runs. Preparing a lane
// turns the raw inputs of a call into the quantities of the recurrence,
//
//   k^_t = norm(k_t)   q^_t = scale * norm(q_t)   alpha_t   beta_t,
//
// by the conventions of the call, in the scalar S, together with bounds on what the rounding and
// the library functions of S did to them. With u and F the tier's unit roundoff and function error
// (scalar/tier.hpp), to first order, a factor 1 + 2^-6 covering the products of these:
//
// Norms. The sum of K squares is off by at most (K + 1) u relatively (all terms are positive), its
// root by half of that plus u, eps and the quotient by u each:
//     |k^ - exact| <= ((K + 1)/2 + 4) u |k^|  componentwise, and one u more for the scale in q^.
//
// Gate. x = a + dt_bias is off by u|x|. |d ln softplus(z) / dz| = sigmoid / softplus is at most 1,
// and at most 1/z for z > 0, so a relative error r of z moves softplus by at most max(-z, 1) r:
//     rel(softplus) <= 2u (1 + max(-z, 0)) + 2F + 4u,      rel(g) = rel(softplus) + F + u.
// sigmoid(z) has |d ln sigmoid / dz| <= 1:
//     rel(sigmoid) <= |z| rel(z) + F + 3u,   rel(z) = F + 2u,      rel(g) = rel(sigmoid) + u.
// alpha = exp(g):  |alpha - exact| <= alpha (|g| rel(g) + F) + underflow.
// The bound is kept absolute: a channel with g = -2661 has a large relative error of a number that
// is practically zero, and x e^-x <= 1/e keeps the absolute one below every unit that matters.
#pragma once

#include <cstdint>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::rule {

/// What the error recursions of bounds/ need of one token. "Upper" values bound the exact quantity
/// and are tight to a few units of double: they are multiplied up over all tokens.
struct TokenBounds {
  double alpha_max = 1.0;    ///< upper, max_i |alpha_i|
  double alpha_error = 0.0;  ///< max_i |computed - exact alpha_i|
  double spectral = 1.0;     ///< upper, ||I - beta k^ k^^T||_2 = max(1, |1 - beta ||k^||^2|)
  double beta = 0.0;         ///< |beta|
  double beta_error = 0.0;   ///< relative
  double k_norm = 0.0;       ///< upper, ||k^||_2
  double q_norm = 0.0;       ///< upper, ||q^||_2

  // How alpha and beta react to the errors of a kernel's functions: |d alpha| per unit of ...
  double by_exp = 0.0;        ///< ... relative error of exp:            max_i alpha_i
  double by_log_alpha = 0.0;  ///< ... relative error of log alpha:      max_i alpha_i |log alpha_i|
  double by_softplus = 0.0;   ///< ... absolute error of softplus:       max_i alpha_i exp(A_log)
  double by_logit = 0.0;      ///< ... relative error of a + dt_bias
  double softplus_slope = 0.0;  ///< max_i exp(A_log) where alpha_i > 0: |d log alpha| per softplus
  double beta_logit = 0.0;      ///< |b| where beta is a sigmoid, else 0
};

template <class S>
struct Lane {
  std::int64_t tokens = 0, K = 0;
  std::int64_t gates = 1;               ///< alphas per token: 1 (GDN) or K (KDA)
  std::vector<S> q, k;                  ///< [tokens, K]
  std::vector<S> alpha;                 ///< [tokens, gates]
  std::vector<S> beta;                  ///< [tokens]
  std::vector<TokenBounds> bounds;      ///< [tokens]
  double k_error = 0.0, q_error = 0.0;  ///< relative, componentwise

  [[nodiscard]] const S* q_row(std::int64_t t) const { return q.data() + t * K; }
  [[nodiscard]] const S* k_row(std::int64_t t) const { return k.data() + t * K; }
  /// alpha of key channel i at token t.
  [[nodiscard]] const S& alpha_at(std::int64_t t, std::int64_t i) const {
    return alpha[static_cast<std::size_t>(t * gates + (gates == 1 ? 0 : i))];
  }
};

/// The inputs of a record as doubles (exact), decoded once for all lanes.
struct DecodedInputs {
  explicit DecodedInputs(const call::Record& record);

  std::vector<double> q, k, v, b, initial_state;   ///< empty where absent; b is `b` or `beta`
  std::vector<double> gate_input, A_log, dt_bias;  ///< empty where absent or not read by the gate
};

/// Prepares tokens [first, first + count) of value head `head`. Never throws on values: a NaN or
/// infinite input gives non-finite quantities.
template <class S>
[[nodiscard]] Lane<S> prepare_lane(const call::Record& record, const call::Dims& dims,
                                   const DecodedInputs& inputs, std::int64_t first,
                                   std::int64_t count, std::int64_t head);

extern template Lane<double> prepare_lane(const call::Record&, const call::Dims&,
                                          const DecodedInputs&, std::int64_t, std::int64_t,
                                          std::int64_t);
extern template Lane<scalar::Quad> prepare_lane(const call::Record&, const call::Dims&,
                                                const DecodedInputs&, std::int64_t, std::int64_t,
                                                std::int64_t);
extern template Lane<scalar::Multi> prepare_lane(const call::Record&, const call::Dims&,
                                                 const DecodedInputs&, std::int64_t, std::int64_t,
                                                 std::int64_t);

}  // namespace goldenrule::rule
