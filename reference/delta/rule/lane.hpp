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
// Rows whose squares would leave the range of double are scaled by a power of two before.
//
// Gate. x = a + dt_bias is off by u|x|. |d ln softplus(z) / dz| = sigmoid / softplus is at most 1,
// and at most 1/z for z > 0, so a relative error r of z moves softplus by at most max(-z, 1) r:
//     rel(softplus) <= 2u (1 + max(-z, 0)) + 2F + 4u,      rel(g) = rel(softplus) + F + u.
// exp(A_log) times softplus, or times x in the bounded form, is exp(A_log + log ..) where a factor
// leaves the range of double: the sum is off by E = rel(..) + (F + 2u) (|A_log| + |log ..|), its
// exponential by e^E - 1 + F. So a finite input never gives inf * 0 (A_log = 1000, a = -2000 is
// alpha = 1), and an infinite one gives the limit (a = -inf: no decay; a = inf: all is erased).
// |d sigmoid / dz| <= e^-|z|:
//     |sigmoid' - sigmoid| <= |z| r e^{-|z| (1 - r)},  r = rel(z) = F + 2u,  and F + 4u relatively.
// alpha = exp(g):  |alpha - exact| <= alpha (e^E - 1 + F) + underflow, E the error of g, and never
// above 1 where the form keeps alpha in [0, 1].
// The bound is kept absolute: a channel with g = -2661 has a large relative error of a number that
// is practically zero, and x e^-x <= 1/e keeps the absolute one below every unit that matters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::delta {

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
  double by_gate = 0.0;   ///< ... relative error of log alpha, or of alpha where it is the input
  double by_logit = 0.0;  ///< ... relative error of a + dt_bias
  bool scaled_logit = false;     ///< a + dt_bias is multiplied by exp(A_log) first
  double softplus_slope = 0.0;   ///< max_i exp(A_log) where alpha_i > 0: |d log alpha| per softplus
  double log_alpha_max = 0.0;    ///< max_i |log alpha_i| where alpha_i > 0
  double log_alpha_error = 0.0;  ///< max_i |computed - exact log alpha_i|
  double log_by_softplus = 0.0;  ///< max_i exp(A_log), where alpha_i is 0 as well
  double beta_logit = 0.0;       ///< |d ln beta / d ln b| = |b| sigmoid(-b) of a sigmoid, else 0
  bool beta_computed = false;    ///< a sigmoid of b, not an input
};

/// The first token at which an input is NaN or Inf; the number of tokens where none is.
struct FirstNonfinite {
  std::int64_t q = 0, k = 0, beta = 0, gates = 0;

  [[nodiscard]] std::int64_t any() const { return std::min({q, k, beta, gates}); }
};

template <class S>
struct Lane {
  std::int64_t tokens = 0, K = 0;
  /// The first tokens of the lane whose corrections are given, as their v: nothing is predicted,
  /// and their beta and q are 0.
  std::int64_t given = 0;
  std::int64_t gates = 1;               ///< alphas per token: 1 (GDN) or K (KDA)
  std::vector<S> q, k;                  ///< [tokens, K]
  std::vector<S> alpha;                 ///< [tokens, gates]
  std::vector<double> log_alpha;        ///< [tokens, gates] to double accuracy, for the bounds
  std::vector<double> logit_slope;      ///< [tokens, gates] |d log alpha / d ln(a + dt_bias)|
  std::vector<S> beta;                  ///< [tokens]
  std::vector<TokenBounds> bounds;      ///< [tokens]
  double k_error = 0.0, q_error = 0.0;  ///< relative, componentwise
  FirstNonfinite first_nonfinite{};

  [[nodiscard]] const S* q_row(std::int64_t t) const { return q.data() + t * K; }
  [[nodiscard]] const S* k_row(std::int64_t t) const { return k.data() + t * K; }
  /// alpha of key channel i at token t.
  [[nodiscard]] const S& alpha_at(std::int64_t t, std::int64_t i) const {
    return alpha[static_cast<std::size_t>(t * gates + (gates == 1 ? 0 : i))];
  }
};

/// One input as doubles (exact), decoded where it is read: decoded whole, the bf16 inputs of a long
/// prefill would be most of the memory of a verdict.
class Input {
 public:
  Input() = default;
  explicit Input(const call::Tensor* tensor) : tensor_(tensor) {}

  [[nodiscard]] bool empty() const { return tensor_ == nullptr; }
  [[nodiscard]] double operator[](std::size_t i) const {
    return (*tensor_)[static_cast<std::int64_t>(i)];
  }
  /// Elements [first, first + count).
  void read(std::int64_t first, std::int64_t count, double* to) const {
    tensor_->read(first, count, to);
  }
  /// The same into `buffer`, which is returned.
  [[nodiscard]] const double* read(std::int64_t first, std::int64_t count,
                                   std::vector<double>& buffer) const {
    buffer.resize(static_cast<std::size_t>(count));
    read(first, count, buffer.data());
    return buffer.data();
  }

 private:
  const call::Tensor* tensor_ = nullptr;
};

/// What lanes are made from. Refers to the record.
struct CallInputs {
  explicit CallInputs(const call::Record& record);

  Input q, k, v, b, initial_state;   ///< empty where absent; b is `b` or `beta`
  Input ring_d, ring_k, ring_g;      ///< initial_ring_*; empty where absent
  Input gate_input, A_log, dt_bias;  ///< empty where absent or not read by the gate
};

/// Where the numbers of a place of a ring begin in ring_d, ring_k and ring_g.
struct RingIndex {
  std::int64_t H, HV, K, V, places, gates;

  RingIndex(const call::Record& record, const call::Dims& dims);

  [[nodiscard]] std::int64_t d(std::int64_t ring, std::int64_t head, std::int64_t place) const {
    return ((ring * HV + head) * places + place) * V;
  }
  [[nodiscard]] std::int64_t k(std::int64_t ring, std::int64_t qk_head, std::int64_t place) const {
    return ((ring * H + qk_head) * places + place) * K;
  }
  [[nodiscard]] std::int64_t g(std::int64_t ring, std::int64_t head, std::int64_t place) const {
    return ((ring * HV + head) * places + place) * gates;
  }
};

/// Prepares the lane of value head `head` of a sequence: the tokens that it replays from its ring,
/// then those of the call. Never throws on values: a NaN or infinite input gives non-finite
/// quantities.
template <class S>
[[nodiscard]] Lane<S> prepare_lane(const call::Record& record, const call::Dims& dims,
                                   const CallInputs& inputs, const call::Sequence& sequence,
                                   std::int64_t head);

/// The same of tokens [first, first + count) of the call, without any ring.
template <class S>
[[nodiscard]] Lane<S> prepare_lane(const call::Record& record, const call::Dims& dims,
                                   const CallInputs& inputs, std::int64_t first, std::int64_t count,
                                   std::int64_t head) {
  return prepare_lane<S>(record, dims, inputs,
                         call::Sequence{.first_token = first, .token_count = count}, head);
}

extern template Lane<double> prepare_lane(const call::Record&, const call::Dims&, const CallInputs&,
                                          const call::Sequence&, std::int64_t);
extern template Lane<scalar::Quad> prepare_lane(const call::Record&, const call::Dims&,
                                                const CallInputs&, const call::Sequence&,
                                                std::int64_t);
extern template Lane<scalar::Multi> prepare_lane(const call::Record&, const call::Dims&,
                                                 const CallInputs&, const call::Sequence&,
                                                 std::int64_t);

}  // namespace goldenrule::delta
