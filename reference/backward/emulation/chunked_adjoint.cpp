// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/chunked_adjoint.hpp"

#include "reference/backward/emulation/adjoint_walk.hpp"

namespace goldenrule::backward {
namespace {

using contract::AdjointPoint;
using Eigen::Index;

class WyAdjoint : public AdjointWalk {
 public:
  using AdjointWalk::AdjointWalk;

 private:
  // o = (q E) h + P v_new, for which the forward pass rounds as this one does.
  void keep_output(const ChunkTape& t, const Floats& q) {
    if (stages_ == nullptr) return;
    Rounder own = rounder_;
    Floats o = product(own.rounded(AdjointPoint::kQueryIn, scaled(q, t.decay.start)), t.state);
    add_product(t.attention, t.v_new, o, 1.0F);
    keep(&AdjointStages::o, t.first, o);
  }

  ChunkTape recompute(Index first, Index n, Floats& state) override {
    using enum AdjointPoint;
    const ChunkRows x = rows_of(first, n);
    ChunkTape t;
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
  void advance(const ChunkTape& t, const Floats& k, const Floats& v_new, Floats& state) {
    state = decayed_state(t.decay, state);
    if (t.decay.is_scalar()) {
      add_transposed(k, rounded(AdjointPoint::kUpdate, scaled(v_new, t.decay.end)), state);
    } else {
      add_transposed(rounded(AdjointPoint::kUpdate, scaled(k, t.decay.end)), t.v_new, state);
    }
  }

  void take_back(const ChunkTape& t, Floats& gradient) override {
    using enum AdjointPoint;
    const ChunkRows x = rows_of(t.first, t.n);
    keep_state(&AdjointStages::dh, t.first, gradient);
    const Floats operand = rounded(kStateGradient, gradient);
    const Floats du = correction_gradient(t, x, operand);
    // dk of the write, and what L of the last token takes of it.
    const Floats written = scaled(product_transposed(t.v_new, operand), t.decay.end);
    Floats last_raw = of_last_token(t, x.k, written, operand);
    gradient = decayed_state(t.decay, gradient);
    add_transposed(rounded(kQueryIn, scaled(x.q, t.decay.start)), x.output_gradient, gradient);
    add_transposed(t.w, du, gradient, -1.0F);
    const PairSums pairs = output_pairs(t, x, attention_gradient(t, x));
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

  struct Erase {
    Floats row, col;              // of A
    Floats through_w, through_u;  // E kb and vb
  };

  Erase erase_gradient(const ChunkTape& t, const ChunkRows& x, const Floats& du) {
    using enum AdjointPoint;
    const Floats dw =
        kept(kKeyCorrection, &AdjointStages::dw, t.first, Floats(-product_transposed(du, t.state)));
    Floats dT = inverse_gradient(t, x, du, dw);
    dT = rounded(kInverseGradient, lower(std::move(dT), true));
    dT = rounded(kInverseGradient, product_transposed(dT, t.inverse));
    Floats dA = lower(-transposed_product(t.inverse, dT), true);
    keep(&AdjointStages::dM, t.first, dA);
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
  Floats inverse_gradient(const ChunkTape& t, const ChunkRows& x, const Floats& du,
                          const Floats& dw) {
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
};

}  // namespace

KernelGradients chunked_adjoint(const KernelCall& call, const contract::ChunkedAdjoint& model,
                                Rounder& rounder, AdjointStages* stages) {
  if (model.form == contract::Form::kDirect) {
    return direct_adjoint(call, model.chunk, rounder, stages);
  }
  return WyAdjoint(call, model.chunk, rounder, stages).run();
}

}  // namespace goldenrule::backward
