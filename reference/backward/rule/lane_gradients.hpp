// SPDX-License-Identifier: Apache-2.0
//
// The gradients of one lane, a sequence of one value head, token by token in reverse. The states
// are computed forward once, of which every n-th is kept (n about sqrt(tokens)), and again block by
// block on the way back: 2 n states of a tile of columns are alive.
//
// The certificate, a bound on |computed - exact| of every element, per value column. Of the forward
// pass e_t bounds the error of a state column z_t (delta/oracle/certificate.hpp). The transpose of
// a step is contracted by the same factors: phi = ||I - beta k k^T||_2 and a = max alpha. With h,
// h_q the relative errors of k^ and q^, b that of beta, A the absolute one of alpha, gamma_n = n u /
// (1 - n u), and computed values throughout, x' = S' column, |x'| <= a |z_(t-1)| (1 + u):
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
//   dg_i:   sum_j e_2 |x'| + e' |G'| + e_2 e' + gamma_n |G'| |x'|,   GDN, with gamma_(K n): an inner
//           product of two columns is bounded as one element is. By alpha itself z_(t-1) for x'.
//
// For 0 <= beta |k|^2 <= 2 and alpha <= 1 errors never grow, they add. Products of two small
// numbers and the rounding of the bounds themselves are covered by a factor 1 + 2^-6. Underflow
// adds an absolute term per operation.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/backward/rule/adjoint_tile.hpp"

namespace goldenrule::backward {

/// What a lane is given beside its prepared quantities. Row-major, exact.
struct LaneInputs {
  std::vector<double> v, output_gradient;     ///< [tokens,V]
  std::vector<double> start, state_gradient;  ///< [K,V]; empty: 0
  std::int64_t V = 0;
  bool by_alpha = false;  ///< dg is the gradient by alpha
};

/// By the quantities of the lane: q^, k^, v, log alpha (alpha), beta and the start state. Radii are
/// infinite without a certificate. A size is what an element has where its terms have random signs:
/// the root of the sum of their squares, those of a column of K channels by its norms.
template <class S>
struct LaneGradients {
  std::vector<S> dq, dk;                      ///< [tokens,K]
  std::vector<S> dv;                          ///< [tokens,V]
  std::vector<S> dg;                          ///< [tokens,gates]
  std::vector<S> dbeta;                       ///< [tokens]
  std::vector<S> dstart;                      ///< [K,V]
  std::vector<double> dq_radius, dk_radius;      ///< [tokens]
  std::vector<double> dq_size, dk_size;          ///< [tokens], of all channels together
  std::vector<double> dv_radius, dv_size;        ///< [tokens,V]
  std::vector<double> dg_radius, dg_size;        ///< [tokens], of all channels together
  std::vector<double> dbeta_radius, dbeta_size;  ///< [tokens]
  std::vector<double> dstart_radius;             ///< [V]
};

template <class S>
[[nodiscard]] LaneGradients<S> lane_gradients(const delta::Lane<S>& lane, const LaneInputs& inputs,
                                              bool certify);

extern template LaneGradients<double> lane_gradients(const delta::Lane<double>&, const LaneInputs&,
                                                     bool);
extern template LaneGradients<scalar::Quad> lane_gradients(const delta::Lane<scalar::Quad>&,
                                                           const LaneInputs&, bool);
extern template LaneGradients<scalar::Multi> lane_gradients(const delta::Lane<scalar::Multi>&,
                                                            const LaneInputs&, bool);

}  // namespace goldenrule::backward
