// SPDX-License-Identifier: Apache-2.0
//
// The direct form: X = v - E U with U = k h in place of u and w, and T^ = T beta D in place of T.
//
// With one gate per head A_ij = D_ij A'_ij, A'_ij = beta_i <k_i, k_j>. D_ij = E_i / E_j, so that
// I + A = diag(E) (I + A') diag(E)^-1 and (I + A)^-1 = D o T, T = (I + A')^-1, without a division.
//
//   recompute   T^_ij = T_ij D_ij beta_j     v_new = T^ X
//               h' = E_C h + sum_i k_i L_i v_new_i^T
//                  = E_C h + sum_j (beta_j sum_i T_ij k_i) (L_j X_j)^T    since L_i D_ij = L_j
//   state       du as in the other form      dX = T^^T du = dv      Y = -E dX
//               dh = E_C dh' + q^T (E do) + k^T Y                   (U = k h: dk of it is Y h^T)
//   inverse     dT^ = du X^T     N = dT^ o D     dT = N o beta_j
//               dA' = -stril(T^T dT T^T), of which what dT has on its diagonal is no part: T^T is
//               upper, so that it reaches the diagonal and what is above alone
//   erase       B = beta_i dA'_ij     dk = L dh' v_new + Y h^T + (dP D)^T q + (B + B^T) k
//               dbeta_j = sum_i (N o T)_ij + sum_m dA'_jm <k_j, k_m>
//   gate        M = dP D o S + N o T o beta_j, S_ij = <q_i, k_j>: what D of a pair takes, +M_ij at
//               row i and -M_ij at row j; A' has no decays
//               raw_i = q E h do - k L dh' v_new + Y U + sum_j (M_ij - M_ji)
//               raw_C += E_C (h dh') 1 + sum_j k_j L_j dh' v_new_j
//
// M comes from fp32 numbers and is subtracted from its own transpose: what is rounded in front of
// it enters both rows of a pair alike. Per channel D does not leave T: T = (I + A)^-1, and k E and
// the pairs over A are those of the other form.
#include "reference/backward/emulation/adjoint_walk.hpp"

namespace goldenrule::backward {
namespace {

using Eigen::Index;

Floats by_columns(const Floats& x, const Floats& by) {
  return x.array().rowwise() * by.col(0).transpose().array();
}

// With D where T has been inverted without it.
Floats with_decays(const ChunkDecay& decay, const Floats& x) {
  return decay.is_scalar() ? Floats(x.array() * decay.between.array()) : x;
}

class DirectAdjoint : public AdjointWalk {
 public:
  using AdjointWalk::AdjointWalk;

 private:
  using enum contract::AdjointPoint;

  ChunkTape recompute(Index first, Index n, Floats& state) override {
    const ChunkRows x = rows_of(first, n);
    ChunkTape t;
    t.first = first;
    t.n = n;
    t.decay = decay_of(first, n);
    const Floats pairs =
        t.decay.is_scalar() ? product_transposed(x.k, x.k) : pair_products(t.decay, x.k, x.k);
    const Floats exact = inverse_of(scaled(lower(pairs, true), x.beta));
    keep(&AdjointStages::T, first, with_decays(t.decay, exact));
    t.inverse = rounded(kInverse, exact);
    t.attention =
        kept(kAttention, &AdjointStages::P, first, lower(pair_products(t.decay, x.q, x.k), false));
    t.weights = rounded(kInverseBeta, with_decays(t.decay, by_columns(t.inverse, x.beta)));
    keep_state(&AdjointStages::h, first, state);
    t.state = rounded(kState, state);
    t.keys = t.decay.is_scalar() ? x.k : rounded(kKeyIn, scaled(x.k, t.decay.start));
    const Floats recall = product(t.keys, t.state);
    const Floats residual = x.v - (t.decay.is_scalar() ? scaled(recall, t.decay.start) : recall);
    if (t.decay.is_scalar()) t.recall = rounded(kRecall, recall);
    t.residual = rounded(kResidual, residual);
    t.v_new = kept(kVNew, &AdjointStages::v_new, first, product(t.weights, t.residual));
    keep_others(t, x);
    advance(t, x, residual, state);
    return t;
  }

  // Stages that this form has no use for: o of the forward pass, u and w.
  void keep_others(const ChunkTape& t, const ChunkRows& x) {
    if (stages_ == nullptr) return;
    Floats o = product(scaled(x.q, t.decay.start), t.state);
    add_product(t.attention, t.v_new, o);
    keep(&AdjointStages::o, t.first, o);
    const Floats T = with_decays(t.decay, t.inverse);
    keep(&AdjointStages::u, t.first, product(T, scaled(x.v, x.beta)));
    keep(&AdjointStages::w, t.first, product(T, scaled(scaled(x.k, x.beta), t.decay.start)));
  }

  void advance(const ChunkTape& t, const ChunkRows& x, const Floats& residual, Floats& state) {
    const bool is_scalar = t.decay.is_scalar();
    const Floats written = is_scalar ? x.k : rounded(kUpdate, scaled(x.k, t.decay.end));
    const Floats keys = rounded(kUpdateKey, scaled(transposed_product(t.inverse, written), x.beta));
    state = decayed_state(t.decay, state);
    add_transposed(keys, is_scalar ? rounded(kUpdate, scaled(residual, t.decay.end)) : t.residual,
                   state);
  }

  void take_back(const ChunkTape& t, Floats& gradient) override {
    const bool is_scalar = t.decay.is_scalar();
    const ChunkRows x = rows_of(t.first, t.n);
    keep_state(&AdjointStages::dh, t.first, gradient);
    const Floats operand = rounded(kStateGradient, gradient);
    const Floats du = correction_gradient(t, x, operand);
    const Floats written = scaled(product_transposed(t.v_new, operand), t.decay.end);
    Floats last_raw = of_last_token(t, x.k, written, gradient);
    keep_gradients(t, du);
    const Floats dX = transposed_product(t.weights, du);
    const Floats of_recall = is_scalar ? Floats(-scaled(dX, t.decay.start)) : Floats(-dX);
    const Floats Y = rounded(kResidualGradient, of_recall);
    gradient = decayed_state(t.decay, gradient);
    add_query(t, x, gradient);
    add_transposed(t.keys, Y, gradient);
    const Floats dP = attention_gradient(t, x);
    const PairSums pairs = output_pairs(t, x, dP);
    const Floats dq = scaled(product_transposed(x.output_gradient, t.state), t.decay.start);
    Floats recalled = product_transposed(Y, t.state);
    if (!is_scalar) recalled = scaled(recalled, t.decay.start);
    const Erase erase = erase_gradient(t, x, du);
    to_.dq.middleRows(t.first, t.n) = kept(kHeads, &AdjointStages::dq, t.first, dq + pairs.y);
    to_.dk.middleRows(t.first, t.n) =
        kept(kHeads, &AdjointStages::dk, t.first, written + recalled + pairs.z + erase.dk);
    to_.dv.middleRows(t.first, t.n) = dX;
    to_.dbeta.middleRows(t.first, t.n) = erase.dbeta;
    Floats raw =
        is_scalar ? Floats(pair_gates(dP.array() * t.attention.array() + erase.of_weights.array()))
                  : erase.raw;
    const Floats dq_raw = is_scalar ? dq : Floats(dq + pairs.y);
    const Floats dk_raw = is_scalar ? written : Floats(written + pairs.z - recalled);
    raw += for_gate(t, x.q.array() * dq_raw.array());
    raw -= for_gate(t, x.k.array() * dk_raw.array());
    if (is_scalar) raw += for_gate(t, of_recall.array() * t.recall.array());
    raw.row(t.n - 1) += for_gate(t, std::move(last_raw)).row(0);
    store_gate(t, raw);
  }

  // The same of those by w and A: dA' is D o dM, from which dM is not to be had where D is 0.
  void keep_gradients(const ChunkTape& t, const Floats& du) {
    if (stages_ == nullptr) return;
    keep(&AdjointStages::dw, t.first, -product_transposed(du, t.state));
    const Floats back = transposed_product(with_decays(t.decay, t.inverse), du);
    keep(&AdjointStages::dM, t.first, lower(-product_transposed(back, t.v_new), true));
  }

  // The part of dh that comes by the outputs.
  void add_query(const ChunkTape& t, const ChunkRows& x, Floats& gradient) {
    if (t.decay.is_scalar()) {
      add_transposed(x.q, rounded(kQueryIn, scaled(x.output_gradient, t.decay.start)), gradient);
    } else {
      add_transposed(rounded(kQueryIn, scaled(x.q, t.decay.start)), x.output_gradient, gradient);
    }
  }

  // Summands of the gradient by G: one per token, or one per channel.
  Floats for_gate(const ChunkTape& t, Floats x) {
    x = rounder_.summand(std::move(x));
    return t.decay.is_scalar() ? Floats(x.rowwise().sum()) : x;
  }

  Floats pair_gates(const Floats& M) {
    return rounder_.summand(M - Floats(M.transpose())).rowwise().sum();
  }

  struct Erase {
    Floats dk, dbeta;
    Floats of_weights;  // N o T o beta, of one gate per head
    Floats raw;         // of gates per channel
  };

  Erase erase_gradient(const ChunkTape& t, const ChunkRows& x, const Floats& du) {
    const Floats N = with_decays(t.decay, lower(product_transposed(du, t.residual), false));
    const Floats by_beta = N.array() * t.inverse.array();
    Erase to;
    to.of_weights = by_columns(by_beta, x.beta);
    to.dbeta = rounded(kBetaSummand, by_beta).colwise().sum().transpose();
    const Floats dT = rounded(kInverseGradient, by_columns(N, x.beta));
    const Floats half = rounded(kInverseGradient, transposed_product(t.inverse, dT));
    const Floats dA = lower(-product_transposed(half, t.inverse), true);
    if (t.decay.is_scalar()) {
      to.dbeta += (dA.array() * product_transposed(x.k, x.k).array()).rowwise().sum().matrix();
      const Floats B = scaled(dA, x.beta);
      const Floats both = B + Floats(rounded(kErase, B).transpose());
      to.dk = product(rounded(kErase, both), x.k);
      return to;
    }
    const Floats keys = scaled(x.k, x.beta);
    const PairSums pairs = pair_sums(t.decay, dA, {keys, keys}, x.k, rounder_);
    const Floats row = scaled(pairs.y, x.beta);
    to.dbeta += (pairs.y.array() * x.k.array()).rowwise().sum().matrix();
    to.dk = row + pairs.z;
    to.raw = rounder_.summand(x.k.array() * row.array());
    to.raw -= rounder_.summand(x.k.array() * pairs.z.array());
    return to;
  }
};

}  // namespace

KernelGradients direct_adjoint(const KernelCall& call, std::int64_t chunk, Rounder& rounder,
                               AdjointStages* stages) {
  return DirectAdjoint(call, chunk, rounder, stages).run();
}

}  // namespace goldenrule::backward
