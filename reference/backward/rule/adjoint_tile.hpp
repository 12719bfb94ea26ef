// SPDX-License-Identifier: Apache-2.0
//
// The adjoint of one token, on a tile of value columns. With G the gradient by the state behind the
// token, S the state before it, and q^ (which has the scale), k^, alpha and beta of the lane
// (delta/rule/lane.hpp), the forward step is
//
//   S' = diag(alpha) S,   r = v - S'^T k^,   S_t = S' + beta k^ r^T,   o = S_t^T q^
//
// and its transpose, for do given,
//
//   G  += q^ do^T           dq^ = S_t do
//   dd  = G^T k^            dv  = beta dd          dbeta = dd . r
//   dk^ = beta (G r - S' dd)
//   G'  = G - beta k^ dd^T  dg_i = sum_j G'_ij S'_ij
//   G  <- diag(alpha) G'
//
// where dg is the gradient by log alpha; by alpha itself, where that is given, it is sum_j G'_ij
// S_ij. One gate per head: also summed over i. Nothing is divided by alpha, beta or a norm, so
// alpha = 0 (dg = 0, G = 0) and beta = 0 need no exception.
//
// dq^, dk^, dbeta and dg are sums over the value columns: a tile adds its part. Sums over K run in
// ascending order in every column, those over the columns of a tile in a fixed order: this is the
// oracle, and nothing is rearranged for speed.
#pragma once

#include <array>
#include <cstdint>

#include "reference/delta/rule/lane.hpp"
#include "reference/delta/rule/recurrent.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::backward {

using delta::kTileColumns;
using delta::kTileVectors;

/// What the certificate reads of a step, per column of a tile, to double accuracy.
template <class S>
struct StepNorms {
  using Row = std::array<double, static_cast<std::size_t>(kTileColumns<S>)>;
  Row gradient2{};  ///< ||G||^2 with q^ do^T in it
  Row residual{};   ///< r
  Row dd{};
};

/// One token of one tile. States and G are [K][kTileVectors]; v and do [kTileVectors], 0 where the
/// tile has no column.
template <class S>
struct AdjointStep {
  using Vector = typename scalar::Tier<S>::Vector;

  const delta::Lane<S>* lane;
  std::int64_t token;
  bool by_alpha;  ///< the gradient of the gate is by alpha itself
  const Vector *before, *after;
  const Vector *v, *output_gradient;
  Vector* G;
  Vector* dv;               ///< [kTileVectors]
  S *dq, *dk, *dg, *dbeta;  ///< added to: [K], [K], [gates], one
  StepNorms<S>* norms;
};

void run(const AdjointStep<double>& step);
void run(const AdjointStep<scalar::Quad>& step);
void run(const AdjointStep<scalar::Multi>& step);

}  // namespace goldenrule::backward
