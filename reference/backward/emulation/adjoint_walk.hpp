// SPDX-License-Identifier: Apache-2.0
//
// What kernels of the backward pass have in common, whichever form they take (chunked_adjoint.hpp):
// the walk over the chunks and back, the stages that are kept, and the terms that both forms have.
#pragma once

#include <cstdint>

#include "reference/backward/emulation/chunked_adjoint.hpp"

namespace goldenrule::backward {

/// With zeros above the diagonal, or on it too.
[[nodiscard]] Floats lower(Floats m, bool strictly);
/// (I + A)^-1 by forward substitution, A strictly lower.
[[nodiscard]] Floats inverse_of(const Floats& A);

/// What the way back needs of a chunk.
struct ChunkTape {
  Eigen::Index first = 0, n = 0;
  ChunkDecay decay;
  Floats inverse, attention, v_new, state;
  Floats w;                                // of u - w h alone
  Floats weights, keys, residual, recall;  // of the direct form alone
};

/// The tokens of a chunk.
struct ChunkRows {
  Floats q, k, v, output_gradient, beta;
};

class AdjointWalk {
 public:
  AdjointWalk(const KernelCall& call, std::int64_t chunk, Rounder& rounder, AdjointStages* stages);
  virtual ~AdjointWalk() = default;
  AdjointWalk(const AdjointWalk&) = delete;
  AdjointWalk& operator=(const AdjointWalk&) = delete;

  KernelGradients run();

 protected:
  /// A chunk of the forward pass, which moves `state` to its end.
  virtual ChunkTape recompute(Eigen::Index first, Eigen::Index n, Floats& state) = 0;
  /// The same chunk on the way back, which moves `gradient` to its start.
  virtual void take_back(const ChunkTape& t, Floats& gradient) = 0;

  /// A stage of the chunk at token `first`, where stages are kept.
  void keep(Floats AdjointStages::*stage, Eigen::Index first, const Floats& x);
  void keep_state(Floats AdjointStages::*stage, Eigen::Index first, const Floats& x);
  Floats kept(contract::AdjointPoint point, Floats AdjointStages::*stage, Eigen::Index first,
              Floats x);
  Floats rounded(contract::AdjointPoint point, Floats x) {
    return rounder_.rounded(point, std::move(x));
  }

  [[nodiscard]] ChunkRows rows_of(Eigen::Index first, Eigen::Index n) const;
  [[nodiscard]] ChunkDecay decay_of(Eigen::Index first, Eigen::Index n);
  [[nodiscard]] static Floats decayed_state(const ChunkDecay& decay, const Floats& state);

  /// du = P^T do + (k L) dh'
  Floats correction_gradient(const ChunkTape& t, const ChunkRows& x, const Floats& operand);
  /// E_C (h dh') 1 + sum_j k_j L_j dh' v_new_j
  Floats of_last_token(const ChunkTape& t, const Floats& k, const Floats& written,
                       const Floats& operand);
  /// dP, and the sums of the pairs over it.
  Floats attention_gradient(const ChunkTape& t, const ChunkRows& x);
  PairSums output_pairs(const ChunkTape& t, const ChunkRows& x, Floats dP);
  void store_gate(const ChunkTape& t, const Floats& raw);

  const KernelCall& call_;
  Eigen::Index chunk_;
  Rounder& rounder_;
  AdjointStages* stages_;
  KernelGradients to_;

 private:
  void make_room(Eigen::Index T, Eigen::Index K, Eigen::Index V, Eigen::Index gates);
  void begin(Eigen::Index first, std::uint64_t pass);
};

/// The direct form.
[[nodiscard]] KernelGradients direct_adjoint(const KernelCall& call, std::int64_t chunk,
                                             Rounder& rounder, AdjointStages* stages);

}  // namespace goldenrule::backward
