// SPDX-License-Identifier: Apache-2.0
//
// The stages of the backward pass of one lane, in chunks of C tokens, exact and with bounds. h, T,
// w, u and v_new are those of the forward pass (delta/rule/forms.hpp) with its certificate. dh is
// the gradient by the state behind a chunk, and dq, dk and dg those of a value head, from the
// adjoint token by token (lane_gradients.hpp) with its certificate. The others are products of
// these. With D_ij the decay from token j to token i, E_i that from the start of the chunk to
// token i and L_j that from token j to its end,
//
//   P_ij = < q^_i D_ij, k^_j >, j <= i          o = (q^ E) h + P v_new
//   du = P^T do + (k^ L) dh                     dP_ij = < do_i, v_new_j >, j <= i
//   dw = -du h^T                                dM_ij = -< (T^T du)_i, v_new_j >, j < i, 0 at i
//   raw_t = dg_t - dg_(t+1) within a chunk, and dg_t at its last token:
//           what a kernel adds up from the end of the chunk to get dg.
//
// dM is the gradient by A, T = (I + A)^-1, -stril(T^T dT T^T) with dT = dw (beta k^ E)^T +
// du (beta v)^T. T^T dT T^T = (T^T dw) w^T + (T^T du) u^T, and dw = -du h^T: that is T^T du times
// (u - w h)^T.
//
// Bounds, to first order, e_x that of x and g(m) = m u / (1 - m u), norms over K; P'_ij, dP'_ij, E,
// dE the largest decays and their errors (delta/oracle/chunk_certificate.hpp), F = P'_cj:
//
//   e_P_ij  <= |q_i| |k_j| ((g(K + c + 3) + e_q + e_k) P'_ij + dP'_ij)
//   e_o     <= sum_j (e_P |v_new| + |P| e_v + g(c + 2) |P v_new|)
//              + |q_i| (E_i e_h + ((g(K + c + 3) + e_q) E_i + dE_i) |h|)
//   e_du    <= sum_i (e_P |do_i| + g(c + 2) |P do_i|)
//              + |k_j| (F_j e_dh + ((g(K + c + 3) + e_k) F_j + dF_j) |dh|)
//   e_dP    <= sum_x (|do| e_v + g(V) |do v_new|)
//   e_x     <= sum_i (e_T |du| + |T| e_du + e_T e_du + g(c) |T du|), x = T^T du
//   e_dM    <= sum_y (e_x |v_new| + |x| e_v + e_x e_v + g(V) |x v_new|)
//   e_dw    <= sum_x (e_du |h| + |du| e_h + e_du e_h + g(V) |du h|)
//
// with columns of h and dh by their norms, and products of two errors by the factor
// delta::kHigherOrder.
#pragma once

#include "reference/backward/rule/lane_gradients.hpp"
#include "reference/delta/oracle/chunk_certificate.hpp"

namespace goldenrule::backward {

/// Numbers and how far each may be from the exact one.
template <class S>
struct Bounded {
  delta::Matrix<S> value;
  delta::Matrix<double> error;
};

template <class S>
struct LaneStages {
  delta::ChunkStages<S> forward;
  delta::ChunkErrors errors;             ///< of `forward`
  Bounded<S> P, dP, dM;                  ///< [tokens,C], 0 where nothing is defined
  Bounded<S> o, du;                      ///< [tokens,V]
  Bounded<S> dw, dq, dk;                 ///< [tokens,K]; dq by q^, which has the scale
  Bounded<S> raw;                        ///< [tokens,gates]
  std::vector<Bounded<S>> dh;            ///< per chunk [K,V], at its end
  delta::Matrix<float> o_reach;          ///< [tokens,V], sizes for terms of random signs
  delta::Matrix<float> du_reach;         ///< [tokens,V]
  std::vector<double> raw_size;          ///< [tokens]
  std::vector<double> dq_size, dk_size;  ///< [tokens], of all channels together
  std::vector<double> dM_size;           ///< [tokens], of all columns together
};

/// `inputs` are finite. dg is by log alpha, whatever inputs.by_alpha says.
template <class S>
[[nodiscard]] LaneStages<S> lane_stages(const delta::Lane<S>& lane, const LaneInputs& inputs,
                                        std::int64_t C);

extern template LaneStages<double> lane_stages(const delta::Lane<double>&, const LaneInputs&,
                                               std::int64_t);
extern template LaneStages<scalar::Quad> lane_stages(const delta::Lane<scalar::Quad>&,
                                                     const LaneInputs&, std::int64_t);
extern template LaneStages<scalar::Multi> lane_stages(const delta::Lane<scalar::Multi>&,
                                                      const LaneInputs&, std::int64_t);

}  // namespace goldenrule::backward
