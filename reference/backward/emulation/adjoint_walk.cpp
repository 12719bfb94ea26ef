// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/adjoint_walk.hpp"

#include <algorithm>

#include "reference/backward/emulation/tile_sum.hpp"

namespace goldenrule::backward {

using contract::AdjointPoint;
using Eigen::Index;

Floats lower(Floats m, bool strictly) {
  for (Index i = 0; i < m.rows(); ++i) {
    const Index from = strictly ? i : i + 1;
    m.row(i).tail(m.cols() - from).setZero();
  }
  return m;
}

Floats inverse_of(const Floats& A) {
  const Index n = A.rows();
  Floats T = Floats::Identity(n, n);
  for (Index i = 1; i < n; ++i) {
    Floats row = Floats::Zero(1, i);
    scalar::multiply_add(-1.0F, {A.row(i).data(), n, 1}, T.data(), n, row.data(), i, 1, i, i);
    T.row(i).head(i) = row;
  }
  return T;
}

AdjointWalk::AdjointWalk(const KernelCall& call, std::int64_t chunk, Rounder& rounder,
                         AdjointStages* stages)
    : call_(call), chunk_(chunk), rounder_(rounder), stages_(stages) {
  const Index T = call.q.rows();
  if (stages != nullptr) make_room(T, call.q.cols(), call.v.cols(), call.alpha.cols());
  to_ = {.dq = Floats::Zero(T, call.q.cols()),
         .dk = Floats::Zero(T, call.k.cols()),
         .dv = Floats::Zero(T, call.v.cols()),
         .dg = Floats::Zero(T, call.alpha.cols()),
         .dbeta = Floats::Zero(T, 1),
         .dstart = {}};
}

KernelGradients AdjointWalk::run() {
  const Index T = call_.q.rows();
  Floats state = call_.start;
  std::vector<ChunkTape> tapes;
  for (Index first = 0; first < T; first += chunk_) {
    begin(first, 0);
    tapes.push_back(recompute(first, std::min<Index>(chunk_, T - first), state));
  }
  Floats gradient = call_.state_gradient;
  for (auto tape = tapes.rbegin(); tape != tapes.rend(); ++tape) {
    begin(tape->first, 1);
    take_back(*tape, gradient);
  }
  to_.dstart = std::move(gradient);
  return std::move(to_);
}

void AdjointWalk::make_room(Index T, Index K, Index V, Index gates) {
  const Index states = (T + chunk_ - 1) / chunk_ * K;
  for (Floats* of : {&stages_->T, &stages_->P, &stages_->dP, &stages_->dM})
    *of = Floats::Zero(T, chunk_);
  for (Floats* of : {&stages_->w, &stages_->dw, &stages_->dq, &stages_->dk}) {
    *of = Floats::Zero(T, K);
  }
  for (Floats* of : {&stages_->u, &stages_->v_new, &stages_->o, &stages_->du}) {
    *of = Floats::Zero(T, V);
  }
  stages_->h = stages_->dh = Floats::Zero(states, V);
  stages_->raw = Floats::Zero(T, gates);
}

void AdjointWalk::keep(Floats AdjointStages::*stage, Index first, const Floats& x) {
  if (stages_ == nullptr) return;
  (stages_->*stage).block(first, 0, x.rows(), x.cols()) = x;
}

void AdjointWalk::keep_state(Floats AdjointStages::*stage, Index first, const Floats& x) {
  keep(stage, first / chunk_ * x.rows(), x);
}

Floats AdjointWalk::kept(AdjointPoint point, Floats AdjointStages::*stage, Index first, Floats x) {
  keep(stage, first, x);
  return rounded(point, std::move(x));
}

void AdjointWalk::begin(Index first, std::uint64_t pass) {
  rounder_.begin(call_.content[static_cast<std::size_t>(first / chunk_)] + pass);
}

ChunkRows AdjointWalk::rows_of(Index first, Index n) const {
  return {call_.q.middleRows(first, n), call_.k.middleRows(first, n), call_.v.middleRows(first, n),
          call_.output_gradient.middleRows(first, n), call_.beta.middleRows(first, n)};
}

// With places of its own: what is drawn for the rest hangs on nothing here.
ChunkDecay AdjointWalk::decay_of(Index first, Index n) {
  begin(first, 2);
  ChunkDecay decay =
      chunk_decay(call_.alpha.middleRows(first, n), call_.log_alpha.middleRows(first, n), rounder_);
  begin(first, 0);
  return decay;
}

Floats AdjointWalk::decayed_state(const ChunkDecay& decay, const Floats& state) {
  if (decay.is_scalar()) return state * decay.whole(0, 0);
  return state.array().colwise() * decay.whole.row(0).transpose().array();
}

Floats AdjointWalk::correction_gradient(const ChunkTape& t, const ChunkRows& x,
                                        const Floats& operand) {
  using enum AdjointPoint;
  const Floats local = rounded(kLocal, transposed_product(t.attention, x.output_gradient));
  if (t.decay.is_scalar()) {
    return kept(kCorrection, &AdjointStages::du, t.first,
                scaled(product(x.k, operand), t.decay.end) + local);
  }
  return kept(kCorrection, &AdjointStages::du, t.first,
              product(rounded(kUpdate, scaled(x.k, t.decay.end)), operand) + local);
}

Floats AdjointWalk::of_last_token(const ChunkTape& t, const Floats& k, const Floats& written,
                                  const Floats& operand) {
  Floats inner = tile_sum(t.state.array() * operand.array(), rounder_);
  if (t.decay.is_scalar()) {
    inner *= t.decay.whole(0, 0);
  } else {
    inner = inner.array() * t.decay.whole.array();
  }
  return inner.array() + (k.array() * written.array()).colwise().sum();
}

Floats AdjointWalk::attention_gradient(const ChunkTape& t, const ChunkRows& x) {
  Floats dP = lower(product_transposed(x.output_gradient, t.v_new), false);
  keep(&AdjointStages::dP, t.first, dP);
  return dP;
}

PairSums AdjointWalk::output_pairs(const ChunkTape& t, const ChunkRows& x, Floats dP) {
  if (t.decay.is_scalar()) {
    dP = rounded(AdjointPoint::kPair, Floats(dP.array() * t.decay.between.array()));
  }
  return pair_sums(t.decay, dP, {x.q, x.q}, x.k, rounder_);
}

void AdjointWalk::store_gate(const ChunkTape& t, const Floats& raw) {
  Floats sums = t.decay.is_scalar() ? Floats(raw.rowwise().sum()) : raw;
  keep(&AdjointStages::raw, t.first, sums);
  for (Index i = t.n - 2; i >= 0; --i) sums.row(i) += sums.row(i + 1);
  to_.dg.middleRows(t.first, t.n) = sums;
}

}  // namespace goldenrule::backward
