// SPDX-License-Identifier: Apache-2.0
//
// Two more ways to compute a lane, structurally apart from the recurrence and from each other.
// Their agreement with it is a test of all three; the chunk form also yields the stages of a
// chunked kernel. Both are plain matrix code (Eigen) without any error bound.
//
// Chunk (WY) form, over chunks of C tokens. With D_ij = prod_{j < l <= i} alpha_l (per key channel
// for KDA) and E_i = the same from the start of the chunk,
//
//   A_ij = beta_i < k^_i * D_ij, k^_j >  (j < i)      T = (I + A)^-1
//   w = T (beta * k^ * E)    u = T (beta * v)    v_new = u - w S_0
//   o_i = (q^_i * E_i)^T S_0 + sum_{j <= i} < q^_i * D_ij, k^_j > v_new_j
//   S_C = diag(E_C) S_0 + sum_j (k^_j * D_Cj) v_new_j^T.
//
// Decays are products of alphas and never exp of a difference of logarithms, so alpha = 0 needs no
// exception: D_ij is zero across an erased state, and nothing is subtracted from minus infinity.
//
// Closed form, without any state. Reading o_t = q^_t^T S_t backwards through
// S_j = (I - beta_j k^_j k^_j^T) D_j S_{j-1} + beta_j k^_j v_j^T with the row r = q^_t,
//
//   M_tj = beta_j < r, k^_j >,      r <- alpha_j * (r - M_tj k^_j),      j = t, t-1, ..., 1,
//
// gives o = M V + R S_0: a masked (lower triangular) attention matrix M [T,T] and the rows R [T,K]
// that are left over. Row i of the final state is the same with r = e_i from the last token.
#pragma once

#include <Eigen/Core>
#include <boost/multiprecision/eigen.hpp>
#include <cstdint>
#include <vector>

#include "reference/delta/rule/lane.hpp"

template <>
struct Eigen::NumTraits<goldenrule::scalar::Quad>
    : Eigen::GenericNumTraits<goldenrule::scalar::Quad> {
  using Real = goldenrule::scalar::Quad;
  using NonInteger = Real;
  using Nested = Real;
  using Literal = double;
  enum {
    IsInteger = 0,
    IsSigned = 1,
    IsComplex = 0,
    RequireInitialization = 1,
    ReadCost = 2,
    AddCost = 20,
    MulCost = 10
  };
};

namespace goldenrule::delta {

template <class S>
using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The stages of the chunk form; row t belongs to token t of the lane.
template <class S>
struct ChunkStages {
  Matrix<S> G;               ///< [tokens, gates] sum of log alpha from the start of the chunk
  Matrix<S> A, T;            ///< [tokens, C] row of A and of (I + A)^-1 within its chunk
  Matrix<S> w;               ///< [tokens, K]
  Matrix<S> u, v_new;        ///< [tokens, V]
  std::vector<Matrix<S>> h;  ///< per chunk [K,V], the state at its start
};

/// What every form computes from a lane: o [tokens,V] and the final state [K,V]. Emulated kernels
/// hand out their corrections d [tokens,V] as well, and their stages where they are asked for.
template <class S>
struct FormResult {
  Matrix<S> o, state, d = {};
  ChunkStages<S> stages = {};
};

/// The recurrence of recurrent.hpp, all columns. `v` is [tokens,V], `initial` [K,V].
template <class S>
[[nodiscard]] FormResult<S> recurrent_form(const Lane<S>& lane, const Matrix<double>& v,
                                           const Matrix<double>& initial);

/// The chunk form with chunks of C >= 1 tokens; `stages` may be null.
template <class S>
[[nodiscard]] FormResult<S> chunk_form(const Lane<S>& lane, const Matrix<double>& v,
                                       const Matrix<double>& initial, std::int64_t C,
                                       ChunkStages<S>* stages);

/// The closed form: O(tokens^2 K) operations, for short lanes.
template <class S>
[[nodiscard]] FormResult<S> closed_form(const Lane<S>& lane, const Matrix<double>& v,
                                        const Matrix<double>& initial);

#define GOLDENRULE_DECLARE_FORMS(S)                                                               \
  extern template FormResult<S> recurrent_form(const Lane<S>&, const Matrix<double>&,             \
                                               const Matrix<double>&);                            \
  extern template FormResult<S> chunk_form(const Lane<S>&, const Matrix<double>&,                 \
                                           const Matrix<double>&, std::int64_t, ChunkStages<S>*); \
  extern template FormResult<S> closed_form(const Lane<S>&, const Matrix<double>&,                \
                                            const Matrix<double>&);
GOLDENRULE_DECLARE_FORMS(double)
GOLDENRULE_DECLARE_FORMS(scalar::Quad)
GOLDENRULE_DECLARE_FORMS(scalar::Multi)
#undef GOLDENRULE_DECLARE_FORMS

}  // namespace goldenrule::delta
