// SPDX-License-Identifier: Apache-2.0
//
// How far the computed stages of the chunk form may be from the exact ones, by first-order rounding
// error analysis with the computed quantities; u is the unit roundoff of the tier and g(m) =
// m u / (1 - m u). Norms are over the K axis; |..| of a matrix is taken element by element. phi a
// is the growth of one exact step (certificate.hpp): errors are transported by exact maps, so only
// the local ones are bounded here.
//
// What the lane itself is off by (lane.hpp): e_k and e_b are the relative errors of k^ and beta,
// e_a that of alpha, absolute. For c tokens with P_ij >= D_ij, E_i and F_j from alpha_max, the
// error dP of a decay follows dP_ij = dP_{i-1,j} alpha_max_i + P_{i-1,j} e_a_i, and dE, dF alike.
//
//   |dG_i|  <= sum_{l <= i} |d log alpha_l| + g(i + 1) sum_{l <= i} |log alpha_l|
//   |dA_ij| <= beta_i ||k_i|| ||k_j|| ((g(K + c + 3) + 2 e_k + e_b) P_ij + dP_ij)
//                                            products of c + 3 roundings
//   |dT|    <= |T| (g(c) |A| + |dA|) |T|     forward substitution leaves T + A T - I <= g(c)|A||T|,
//                                            N. J. Higham, Accuracy and Stability, section 14.2
//   |dw_i|  <= sum_l |dT_il| r_l E_l + |T_il| r_l ((g(2c + 3) + e_k + e_b) E_l + dE_l),
//                                            r_l = beta_l ||k_l||
//   |du_i|  <= sum_l (|dT_il| + (g(c + 2) + e_b) |T_il|) beta_l |v_l|
//   |dv'|   <= |du| + (|dw_i| + g(K + 1) ||w_i||) ||S|| + u |v'|        v' = v_new
//   ||dS||  <= (g(c + 2) E_c + dE_c) ||S|| + sum_j ||k_j|| (F_j |dv'_j|
//              + ((g(2c + 1) + e_k) F_j + dF_j) |v'_j|) + u ||S'||.
//
// S carries the errors of the chunks before, transported, and v' those times ||w_i|| + |dw_i|. The
// factor 1 + 2^-6 covers products of two small numbers and the arithmetic of the bounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

inline constexpr double kHigherOrder = 1.0 + 0x1p-6;

template <class S>
[[nodiscard]] double rounding_growth(std::int64_t m) {
  const double mu = static_cast<double>(m) * scalar::Tier<S>::kUnitRoundoff;
  return mu / (1.0 - mu);
}

/// What the bound of one chunk takes from its tokens, in the letters of the formulas above.
struct ChunkFactors {
  Matrix<double> P, dP;       ///< [c,c], lower triangle: the largest decay from token j to token i
  Eigen::VectorXd E, dE;      ///< the largest decay from the start of the chunk
  Eigen::VectorXd transport;  ///< the growth of an error from there
  Eigen::VectorXd q, k;       ///< norms
  Eigen::VectorXd reach;      ///< beta ||k||

  explicit ChunkFactors(std::span<const TokenBounds> tokens);
};

/// Bounds of the errors of the stages of a lane.
struct ChunkErrors {
  Matrix<double> G;                   ///< [tokens,gates]
  Matrix<double> A, T;                ///< [tokens,C]
  Eigen::VectorXd w;                  ///< [tokens], of every element of a row
  Matrix<double> u, v_new;            ///< [tokens,V]
  std::vector<Eigen::RowVectorXd> h;  ///< per chunk [V], of every element of a column
  Eigen::RowVectorXd state;           ///< the same of the final state
  Matrix<double> corrections;         ///< [tokens,V], v_new with an exact state
};

/// `result` and `stages` are those of chunk_form<S> with chunks of C. NaN where the lane has a
/// token whose inputs are not finite.
template <class S>
[[nodiscard]] ChunkErrors chunk_errors(const Lane<S>& lane, const Matrix<double>& v,
                                       const Matrix<double>& initial, std::int64_t C,
                                       const FormResult<S>& result, const ChunkStages<S>& stages);

/// Underflow of intermediate products, each at most once per operation on a result.
template <class S>
[[nodiscard]] double underflow_term(const Lane<S>& lane, const Matrix<double>& v,
                                    const Matrix<double>& initial);

#define GOLDENRULE_DECLARE(S)                                                            \
  extern template ChunkErrors chunk_errors(const Lane<S>&, const Matrix<double>&,        \
                                           const Matrix<double>&, std::int64_t,          \
                                           const FormResult<S>&, const ChunkStages<S>&); \
  extern template double underflow_term(const Lane<S>&, const Matrix<double>&,           \
                                        const Matrix<double>&);
GOLDENRULE_DECLARE(double)
GOLDENRULE_DECLARE(scalar::Quad)
GOLDENRULE_DECLARE(scalar::Multi)
#undef GOLDENRULE_DECLARE

}  // namespace goldenrule::delta
