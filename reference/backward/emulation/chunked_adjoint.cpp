// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/chunked_adjoint.hpp"

#include <algorithm>

#include "reference/backward/emulation/tile_sum.hpp"

namespace goldenrule::backward {
namespace {

using contract::AdjointPoint;
using Eigen::Index;

// What the way back needs of a chunk.
struct Tape {
  Index first = 0, n = 0;
  ChunkDecay decay;
  Floats inverse, attention, w, v_new, state;
};

Floats lower(Floats m, bool strictly) {
  for (Index i = 0; i < m.rows(); ++i) {
    const Index from = strictly ? i : i + 1;
    m.row(i).tail(m.cols() - from).setZero();
  }
  return m;
}

// (I + A)^-1 by forward substitution, A strictly lower.
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

class Adjoint {
 public:
  Adjoint(const KernelCall& call, std::int64_t chunk, Rounder& rounder, AdjointStages* stages)
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

  KernelGradients run() {
    const Index T = call_.q.rows();
    Floats state = call_.start;
    std::vector<Tape> tapes;
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

 private:
  void make_room(Index T, Index K, Index V, Index gates) {
    const Index states = (T + chunk_ - 1) / chunk_ * K;
    for (Floats* of : {&stages_->T, &stages_->P, &stages_->dP}) *of = Floats::Zero(T, chunk_);
    for (Floats* of : {&stages_->w, &stages_->dw, &stages_->dq, &stages_->dk}) {
      *of = Floats::Zero(T, K);
    }
    for (Floats* of : {&stages_->u, &stages_->v_new, &stages_->o, &stages_->du}) {
      *of = Floats::Zero(T, V);
    }
    stages_->h = stages_->dh = Floats::Zero(states, V);
    stages_->raw = Floats::Zero(T, gates);
  }

  // A stage of the chunk at token `first`, where stages are kept.
  void keep(Floats AdjointStages::*stage, Index first, const Floats& x) {
    if (stages_ == nullptr) return;
    (stages_->*stage).block(first, 0, x.rows(), x.cols()) = x;
  }
  void keep_state(Floats AdjointStages::*stage, Index first, const Floats& x) {
    keep(stage, first / chunk_ * x.rows(), x);
  }
  Floats kept(AdjointPoint point, Floats AdjointStages::*stage, Index first, Floats x) {
    keep(stage, first, x);
    return rounded(point, std::move(x));
  }

  // o = (q E) h + P v_new, for which the forward pass rounds as this one does.
  void keep_output(const Tape& t, const Floats& q) {
    if (stages_ == nullptr) return;
    Rounder own = rounder_;
    Floats o = product(own.rounded(AdjointPoint::kQueryIn, scaled(q, t.decay.start)), t.state);
    add_product(t.attention, t.v_new, o, 1.0F);
    keep(&AdjointStages::o, t.first, o);
  }

  void begin(Index first, std::uint64_t pass) {
    rounder_.begin(call_.content[static_cast<std::size_t>(first / chunk_)] + pass);
  }

  Floats rounded(AdjointPoint point, Floats x) { return rounder_.rounded(point, std::move(x)); }

  // The tokens of a chunk.
  struct Rows {
    Floats q, k, v, output_gradient, beta;
  };
  Rows rows_of(Index first, Index n) const {
    return {call_.q.middleRows(first, n), call_.k.middleRows(first, n),
            call_.v.middleRows(first, n), call_.output_gradient.middleRows(first, n),
            call_.beta.middleRows(first, n)};
  }

  // With places of its own: what is drawn for the rest hangs on nothing here.
  ChunkDecay decay_of(Index first, Index n) {
    begin(first, 2);
    ChunkDecay decay = chunk_decay(call_.alpha.middleRows(first, n),
                                   call_.log_alpha.middleRows(first, n), rounder_);
    begin(first, 0);
    return decay;
  }

  Tape recompute(Index first, Index n, Floats& state) {
    using enum AdjointPoint;
    const Rows x = rows_of(first, n);
    Tape t;
    t.first = first;
    t.n = n;
    t.decay = decay_of(first, n);
    const Floats A = scaled(lower(pair_products(t.decay, x.k, x.k), true), x.beta);
    t.inverse = kept(kInverse, &AdjointStages::T, first, inverse_of(A));
    t.attention =
        kept(kAttention, &AdjointStages::P, first, lower(pair_products(t.decay, x.q, x.k), false));
    const Floats keys = rounded(kBetaK, scaled(scaled(x.k, x.beta), t.decay.start));
    t.w = kept(kW, &AdjointStages::w, first, product(t.inverse, keys));
    Floats v_new = kept(kU, &AdjointStages::u, first,
                        product(t.inverse, rounded(kBetaV, scaled(x.v, x.beta))));
    keep_state(&AdjointStages::h, first, state);
    t.state = rounded(kState, state);
    add_product(t.w, t.state, v_new, -1.0F);
    t.v_new = kept(kVNew, &AdjointStages::v_new, first, v_new);
    keep_output(t, x.q);
    advance(t, x.k, v_new, state);
    return t;
  }

  // h' = E_C h + (k L)^T v_new: one of the two factors carries L and is rounded with it.
  void advance(const Tape& t, const Floats& k, const Floats& v_new, Floats& state) {
    state = decayed_state(t.decay, state);
    if (t.decay.is_scalar()) {
      add_transposed(k, rounded(AdjointPoint::kUpdate, scaled(v_new, t.decay.end)), state);
    } else {
      add_transposed(rounded(AdjointPoint::kUpdate, scaled(k, t.decay.end)), t.v_new, state);
    }
  }

  static Floats decayed_state(const ChunkDecay& decay, const Floats& state) {
    if (decay.is_scalar()) return state * decay.whole(0, 0);
    return state.array().colwise() * decay.whole.row(0).transpose().array();
  }

  void take_back(const Tape& t, Floats& gradient) {
    using enum AdjointPoint;
    const Rows x = rows_of(t.first, t.n);
    keep_state(&AdjointStages::dh, t.first, gradient);
    const Floats operand = rounded(kStateGradient, gradient);
    const Floats du = correction_gradient(t, x, operand);
    // dk of the write, and what L of the last token takes of it.
    const Floats written = scaled(product_transposed(t.v_new, operand), t.decay.end);
    Floats last_raw = of_last_token(t, x.k, written, operand);
    gradient = decayed_state(t.decay, gradient);
    add_transposed(rounded(kQueryIn, scaled(x.q, t.decay.start)), x.output_gradient, gradient);
    add_transposed(t.w, du, gradient, -1.0F);
    const PairSums pairs = output_pairs(t, x);
    const Floats dq =
        pairs.y + scaled(product_transposed(x.output_gradient, t.state), t.decay.start);
    const Floats of_write = written + pairs.z;
    const Erase erase = erase_gradient(t, x, du);
    const Floats erased = scaled(erase.row + erase.through_w, x.beta);
    to_.dq.middleRows(t.first, t.n) = kept(kHeads, &AdjointStages::dq, t.first, dq);
    to_.dk.middleRows(t.first, t.n) =
        kept(kHeads, &AdjointStages::dk, t.first,
             rounded(kKeyHalves, of_write) + rounded(kKeyHalves, erased + erase.col));
    to_.dv.middleRows(t.first, t.n) = scaled(erase.through_u, x.beta);
    to_.dbeta.middleRows(t.first, t.n) =
        (erase.through_u.array() * x.v.array()).rowwise().sum() +
        ((erase.row + erase.through_w).array() * x.k.array()).rowwise().sum();
    Floats raw = rounder_.summand(x.q.array() * dq.array());
    raw -= rounder_.summand(x.k.array() * of_write.array());
    raw += rounder_.summand(x.k.array() * erased.array());
    raw -= rounder_.summand(x.k.array() * erase.col.array());
    raw.row(t.n - 1) += rounder_.summand(std::move(last_raw)).row(0);
    store_gate(t, raw);
  }

  Floats correction_gradient(const Tape& t, const Rows& x, const Floats& operand) {
    using enum AdjointPoint;
    const Floats local = rounded(kLocal, transposed_product(t.attention, x.output_gradient));
    if (t.decay.is_scalar()) {
      return kept(kCorrection, &AdjointStages::du, t.first,
                  scaled(product(x.k, operand), t.decay.end) + local);
    }
    return kept(kCorrection, &AdjointStages::du, t.first,
                product(rounded(kUpdate, scaled(x.k, t.decay.end)), operand) + local);
  }

  // E_C (h dh') 1 + sum_j k_j L_j dh' v_new_j
  Floats of_last_token(const Tape& t, const Floats& k, const Floats& written,
                       const Floats& operand) {
    Floats inner = tile_sum(t.state.array() * operand.array(), rounder_);
    if (t.decay.is_scalar()) {
      inner *= t.decay.whole(0, 0);
    } else {
      inner = inner.array() * t.decay.whole.array();
    }
    return inner.array() + (k.array() * written.array()).colwise().sum();
  }

  PairSums output_pairs(const Tape& t, const Rows& x) {
    Floats dP = lower(product_transposed(x.output_gradient, t.v_new), false);
    keep(&AdjointStages::dP, t.first, dP);
    if (t.decay.is_scalar()) {
      dP = rounded(AdjointPoint::kPair, Floats(dP.array() * t.decay.between.array()));
    }
    return pair_sums(t.decay, dP, {x.q, x.q}, x.k, rounder_);
  }

  struct Erase {
    Floats row, col;              // of A
    Floats through_w, through_u;  // E kb and vb
  };

  Erase erase_gradient(const Tape& t, const Rows& x, const Floats& du) {
    using enum AdjointPoint;
    const Floats dw =
        kept(kKeyCorrection, &AdjointStages::dw, t.first, Floats(-product_transposed(du, t.state)));
    Floats dT = inverse_gradient(t, x, du, dw);
    dT = rounded(kInverseGradient, lower(std::move(dT), true));
    dT = rounded(kInverseGradient, product_transposed(dT, t.inverse));
    Floats dA = lower(-transposed_product(t.inverse, dT), true);
    const Floats keys = scaled(x.k, x.beta);
    Floats operand = keys;
    if (t.decay.is_scalar()) {
      dA = rounded(kErase, Floats(dA.array() * t.decay.between.array()));
      rounder_.apply(kBetaK, operand);
    } else if (call_.beta_has_16_bits) {
      rounder_.apply(kEraseKey, operand);
    }
    const PairSums pairs = pair_sums(t.decay, dA, {keys, operand}, x.k, rounder_);
    return {pairs.y, pairs.z, scaled(transposed_product(t.inverse, dw), t.decay.start),
            transposed_product(t.inverse, du)};
  }

  // One gate per head: beta is in the operands; per channel it is applied behind the products.
  Floats inverse_gradient(const Tape& t, const Rows& x, const Floats& du, const Floats& dw) {
    using enum AdjointPoint;
    if (t.decay.is_scalar()) {
      const Floats keys = rounded(kBetaK, scaled(scaled(x.k, x.beta), t.decay.start));
      return product_transposed(dw, keys) +
             product_transposed(du, rounded(kBetaV, scaled(x.v, x.beta)));
    }
    const Floats keys = rounded(kKeyIn, scaled(x.k, t.decay.start));
    const Floats dT = product_transposed(dw, keys) + product_transposed(du, x.v);
    return dT.array().rowwise() * x.beta.col(0).transpose().array();
  }

  void store_gate(const Tape& t, const Floats& raw) {
    Floats sums = t.decay.is_scalar() ? Floats(raw.rowwise().sum()) : raw;
    keep(&AdjointStages::raw, t.first, sums);
    for (Index i = t.n - 2; i >= 0; --i) sums.row(i) += sums.row(i + 1);
    to_.dg.middleRows(t.first, t.n) = sums;
  }

  const KernelCall& call_;
  Index chunk_;
  Rounder& rounder_;
  AdjointStages* stages_;
  KernelGradients to_;
};

}  // namespace

KernelGradients chunked_adjoint(const KernelCall& call, std::int64_t chunk, Rounder& rounder,
                                AdjointStages* stages) {
  return Adjoint(call, chunk, rounder, stages).run();
}

}  // namespace goldenrule::backward
