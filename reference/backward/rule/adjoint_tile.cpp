// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/adjoint_tile.hpp"

namespace goldenrule::backward {
namespace {

constexpr int W = kTileVectors;

template <class S>
using VectorOf = typename scalar::Tier<S>::Vector;
template <class S>
using NormOf = decltype(scalar::leading(std::declval<const VectorOf<S>&>()));

// The columns of a tile added up.
template <class S>
GOLDENRULE_INLINE S sum_of_columns(const VectorOf<S> (&x)[W]) {
  VectorOf<S> packs = x[0];
  for (int w = 1; w < W; ++w) packs += x[w];
  S sum = scalar::get_lane(packs, 0);
  for (int lane = 1; lane < scalar::Tier<S>::kLanes; ++lane) {
    sum = sum + scalar::get_lane(packs, lane);
  }
  return sum;
}

template <class S>
GOLDENRULE_INLINE void store(const NormOf<S> (&from)[W], typename StepNorms<S>::Row& to) {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  for (int w = 0; w < W; ++w) {
    for (int lane = 0; lane < lanes; ++lane) {
      if constexpr (lanes == 1) {
        to[static_cast<std::size_t>(w)] = from[w];
      } else {
        const int column = w * lanes + lane;
        to[static_cast<std::size_t>(column)] = from[w][lane];
      }
    }
  }
}

template <class S>
GOLDENRULE_INLINE void store_leading(const VectorOf<S> (&from)[W], typename StepNorms<S>::Row& to) {
  NormOf<S> leading[W];
  for (int w = 0; w < W; ++w) leading[w] = scalar::leading(from[w]);
  store<S>(leading, to);
}

// What the first pass over the key channels sums up, per column.
template <class S>
struct ColumnSums {
  VectorOf<S> predicted[W];  // S'^T k^
  VectorOf<S> dd[W];
  NormOf<S> gradient2[W];
};

// G += q^ do^T, dq^, and the sums with k^.
template <class S>
GOLDENRULE_INLINE ColumnSums<S> add_output(const AdjointStep<S>& a) {
  const S* q = a.lane->q_row(a.token);
  const S* k = a.lane->k_row(a.token);
  ColumnSums<S> sums;
  for (int w = 0; w < W; ++w) {
    sums.predicted[w] = sums.dd[w] = scalar::broadcast_column(S(0));
    sums.gradient2[w] = NormOf<S>{};
  }
  for (std::int64_t i = 0; i < a.lane->K; ++i) {
    const VectorOf<S> qi = scalar::broadcast_column(q[i]);
    const VectorOf<S> ki = scalar::broadcast_column(k[i]);
    const VectorOf<S> alpha = scalar::broadcast_column(a.lane->alpha_at(a.token, i));
    VectorOf<S> read[W];
    for (int w = 0; w < W; ++w) {
      const std::int64_t at = i * W + w;
      const VectorOf<S> G = a.G[at] + qi * a.output_gradient[w];
      a.G[at] = G;
      read[w] = a.after[at] * a.output_gradient[w];
      sums.predicted[w] += alpha * a.before[at] * ki;
      sums.dd[w] += G * ki;
      sums.gradient2[w] += scalar::leading(G) * scalar::leading(G);
    }
    a.dq[i] = a.dq[i] + sum_of_columns<S>(read);
  }
  return sums;
}

// dk^ and dg, and G to what it is before the token.
template <class S>
GOLDENRULE_INLINE void take_back(const AdjointStep<S>& a, const VectorOf<S> (&r)[W],
                                 const VectorOf<S> (&dd)[W]) {
  const S* k = a.lane->k_row(a.token);
  const S beta = a.lane->beta[static_cast<std::size_t>(a.token)];
  const std::int64_t gate_step = a.lane->gates == 1 ? 0 : 1;
  for (std::int64_t i = 0; i < a.lane->K; ++i) {
    const VectorOf<S> alpha = scalar::broadcast_column(a.lane->alpha_at(a.token, i));
    const VectorOf<S> erased = scalar::broadcast_column(S(beta * k[i]));
    VectorOf<S> of_key[W];
    VectorOf<S> of_gate[W];
    for (int w = 0; w < W; ++w) {
      const std::int64_t at = i * W + w;
      const VectorOf<S> decayed = alpha * a.before[at];
      of_key[w] = a.G[at] * r[w] - decayed * dd[w];
      const VectorOf<S> G = a.G[at] - erased * dd[w];
      of_gate[w] = G * (a.by_alpha ? a.before[at] : decayed);
      a.G[at] = alpha * G;
    }
    a.dk[i] = a.dk[i] + beta * sum_of_columns<S>(of_key);
    a.dg[i * gate_step] = a.dg[i * gate_step] + sum_of_columns<S>(of_gate);
  }
}

template <class S>
GOLDENRULE_INLINE void run_step(const AdjointStep<S>& a) {
  const ColumnSums<S> sums = add_output(a);
  const VectorOf<S> beta =
      scalar::broadcast_column(a.lane->beta[static_cast<std::size_t>(a.token)]);
  VectorOf<S> r[W];
  VectorOf<S> both[W];
  for (int w = 0; w < W; ++w) {
    r[w] = a.v[w] - sums.predicted[w];
    both[w] = sums.dd[w] * r[w];
    a.dv[w] = beta * sums.dd[w];
  }
  *a.dbeta = *a.dbeta + sum_of_columns<S>(both);
  take_back(a, r, sums.dd);
  store<S>(sums.gradient2, a.norms->gradient2);
  store_leading<S>(r, a.norms->residual);
  store_leading<S>(sums.dd, a.norms->dd);
}

}  // namespace

// target_clones needs ordinary functions.
GOLDENRULE_VECTOR_CLONES void run(const AdjointStep<double>& step) { run_step(step); }
GOLDENRULE_VECTOR_CLONES void run(const AdjointStep<scalar::Quad>& step) { run_step(step); }
void run(const AdjointStep<scalar::Multi>& step) { run_step(step); }

}  // namespace goldenrule::backward
