// SPDX-License-Identifier: Apache-2.0
//
// The certificate, a bound on |computed - exact| of every element, per value column. Of the forward
// pass e_t bounds the error of a state column z_t (delta/oracle/certificate.hpp). The transpose of
// a step is contracted by the same factors: phi = ||I - beta k k^T||_2 and a = max alpha. With h,
// h_q the relative errors of k^ and q^, b that of beta, A the absolute one of alpha, gamma_n = n u
// / (1 - n u), and computed values throughout, x' = S' column, |x'| <= a |z_(t-1)| (1 + u):
//
//   G + q do:      e1  = e_G + (h_q + 2u) |q| |do| + u |G|
//   S':            e'  = a e_(t-1) + (A + u a) |z_(t-1)|
//   r = v - p:     e_r = |k| e' + (gamma_(K+1) + h) |x'| |k| + u |r|
//   dd = G^T k:    e_d = |k| e1 + (gamma_K + h) |G| |k|                         (Cauchy-Schwarz)
//   dv = beta dd:  beta e_d + (b + u) |dv|
//   G':            e_2 = phi e1 + beta |k| [ (h + b + 2u) |dd| + (gamma_K + h) |G| |k| ] + u |G'|
//   e_G <- a e_2 + (A + u a) |G'|,                      |G'| <= phi |G| + what its rounding adds
//
// The last but one as in the forward certificate: G' = (I - beta k k^T) G exactly, what is computed
// in place of k^T G is dd. Sums over the V columns, n = V + 8 additions, of which each element is
// bounded by the norm of its column:
//
//   dq^_i:  sum_j e_t |do_j| + gamma_n |z_t| |do_j|
//   dbeta:  sum_j e_d |r| + |dd| e_r + e_d e_r + gamma_n |dd| |r|
//   dk^_i:  beta sum_j [ e1 |r| + |G| e_r + e' |dd| + |x'| e_d + e1 e_r + e' e_d
//                        + gamma_(2n) (|G| |r| + |x'| |dd|) ] + (b + u) |dk^_i|
//   dg_i:   sum_j e_2 |x'| + e' |G'| + e_2 e' + gamma_n |G'| |x'|
//
// One gate per head: the same with gamma_(K n), as the inner product of two columns is bounded as
// one element is. By alpha itself z_(t-1) stands for x'.
//
// For 0 <= beta |k|^2 <= 2 and alpha <= 1 errors never grow, they add. Products of two small
// numbers and the rounding of the bounds themselves are covered by a factor 1 + 2^-6. Underflow
// adds an absolute term per operation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reference/backward/rule/lane_gradients.hpp"

namespace goldenrule::backward {

/// 0 times a bound that is infinite is 0: what is erased carries no error.
[[nodiscard]] inline double times(double x, double bound) { return x == 0.0 ? 0.0 : x * bound; }

/// The states before or behind a token: norms of the columns of a tile, and bounds of their errors.
template <class S>
struct StateColumns {
  typename StepNorms<S>::Row norm{}, error{};
};

/// The gradient by a tile's states, and the bounds on what is taken of it.
template <class S>
class AdjointCertificate {
 public:
  using Row = typename StepNorms<S>::Row;

  AdjointCertificate(const delta::Lane<S>& lane, int columns, std::int64_t V, bool by_alpha)
      : lane_(&lane),
        columns_(columns),
        by_alpha_(by_alpha),
        gamma_key_(gamma(lane.K + 1)),
        gamma_sum_(gamma(V + 8)),
        gamma_gate_(gamma(lane.gates == 1 ? lane.K * (V + 8) : V + 8)) {}

  /// What token t adds to the radii of `to`, columns from `first` on.
  void advance(std::int64_t t, const StateColumns<S>& before, const StateColumns<S>& behind,
               const StepNorms<S>& norms, const double* output_gradient, std::int64_t first,
               LaneGradients<S>& to) {
    const delta::TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
    const auto at = static_cast<std::size_t>(t);
    double of_q = 0.0;
    double of_k = 0.0;
    double of_g = 0.0;
    double of_beta = 0.0;
    for (int c = 0; c < columns_; ++c) {
      const auto column = static_cast<std::size_t>(c);
      const Column e = column_errors(b, before, behind, norms, output_gradient[c], column);
      of_q += e.q;
      of_k += e.k;
      of_g += e.g;
      of_beta += e.beta;
      to.dv_radius[static_cast<std::size_t>(first) + column] = e.v;
      // dd of a key in a random direction, or of this one if that is more.
      const double dd = std::max(b.k_norm * e.gradient / std::sqrt(static_cast<double>(lane_->K)),
                                 std::fabs(norms.dd[column]));
      to.dv_size[static_cast<std::size_t>(first) + column] = b.beta * dd;
      to.dbeta_size[at] += squared(dd * norms.residual[column]);
      to.dq_size[at] += squared(behind.norm[column] * output_gradient[c]);
      to.dk_size[at] +=
          squared(b.beta * e.gradient * norms.residual[column]) + squared(b.beta * e.decayed * dd);
      to.dg_size[at] += squared(e.gradient * e.decayed);
    }
    to.dq_radius[at] += of_q * kSafety;
    to.dk_radius[at] += times(b.beta, of_k) * kSafety;
    to.dg_radius[at] += of_g * kSafety;
    to.dbeta_radius[at] += of_beta * kSafety;
  }

  /// Of every element of a column of the gradient by the state.
  [[nodiscard]] double error(int column) const {
    return error_[static_cast<std::size_t>(column)] * kSafety;
  }

 private:
  static constexpr double kSafety = 1.0 + 0x1p-6;            // of local terms
  static constexpr double kBoundArithmetic = 1.0 + 0x1p-44;  // at every token
  static constexpr double u = scalar::Tier<S>::kUnitRoundoff;

  static double gamma(std::int64_t n) {
    const double nu = static_cast<double>(n) * u;
    return nu / (1.0 - nu);
  }

  static double squared(double x) { return x * x; }

  struct Column {
    double q = 0.0, k = 0.0, v = 0.0, g = 0.0, beta = 0.0;
    double gradient = 0.0, decayed = 0.0;  // |G| and |S'|
  };

  Column column_errors(const delta::TokenBounds& b, const StateColumns<S>& before,
                       const StateColumns<S>& behind, const StepNorms<S>& norms,
                       double output_gradient, std::size_t c) {
    const double h = lane_->k_error;
    const double grow = 1.0 + static_cast<double>(lane_->K + 8) * 0x1p-53;
    const double underflow = 4.0 * static_cast<double>(lane_->K) * scalar::Tier<S>::kUnderflow *
                             (1.0 + b.k_norm) * (1.0 + b.beta);
    const double d_o = std::fabs(output_gradient);
    const double G = std::sqrt(norms.gradient2[c]) * grow;
    const double dd = std::fabs(norms.dd[c]) * grow;
    const double r = std::fabs(norms.residual[c]) * grow;
    const double z = before.norm[c];
    const double decayed = times(b.alpha_max, z) * grow;
    const double e1 =
        error_[c] + ((lane_->q_error + 2 * u) * b.q_norm * d_o + u * G) * kSafety + underflow;
    const double e_decayed = times(b.alpha_max, before.error[c]) +
                             times(b.alpha_error + u * b.alpha_max, z) * kSafety + underflow;
    const double e_r =
        times(b.k_norm, e_decayed) + (gamma_key_ + h) * decayed * b.k_norm + u * r + underflow;
    const double e_d = times(b.k_norm, e1) + (gamma_key_ + h) * G * b.k_norm + underflow;
    const double after = b.spectral * G;  // |G'|
    const double local =
        b.beta * b.k_norm * ((h + b.beta_error + 2 * u) * dd + (gamma_key_ + h) * G * b.k_norm) +
        u * after;
    const double e2 = times(b.spectral, e1) + local * kSafety + underflow;
    Column e{.gradient = G, .decayed = decayed};
    e.q = times(d_o, behind.error[c]) + gamma_sum_ * behind.norm[c] * d_o + underflow;
    e.beta = times(r, e_d) + times(dd, e_r) + e_d * e_r + gamma_sum_ * dd * r + underflow;
    e.k = times(r, e1) + times(G, e_r) + times(dd, e_decayed) + times(decayed, e_d) + e1 * e_r +
          e_decayed * e_d + (2 * gamma_sum_ + b.beta_error + u) * (G * r + decayed * dd) +
          underflow;
    e.v = (times(b.beta, e_d) + (b.beta_error + u) * b.beta * dd + underflow) * kSafety;
    const double x = by_alpha_ ? z : decayed;
    const double e_x = by_alpha_ ? before.error[c] : e_decayed;
    e.g = times(x, e2) + times(after, e_x) + e2 * e_x + gamma_gate_ * after * x + underflow;
    error_[c] = (times(b.alpha_max, e2) + times(b.alpha_error + u * b.alpha_max, after) * kSafety +
                 underflow) *
                kBoundArithmetic;
    return e;
  }

  const delta::Lane<S>* lane_;
  int columns_;
  bool by_alpha_;
  double gamma_key_, gamma_sum_, gamma_gate_;
  Row error_{};
};

}  // namespace goldenrule::backward
