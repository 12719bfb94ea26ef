// SPDX-License-Identifier: Apache-2.0
//
// Pairs of tokens of a chunk. With D_ij the decay from token j to token i >= j, one number or one
// per key channel,
//
//   S_ij = sum_x L_ix D_ijx R_jx,
//   y_i = sum_{j <= i} M_ij D_ij R_j,     z_j = sum_{i >= j} M_ij D_ij L_i   (the adjoint of it).
//
// One gate per head: D is a matrix, M D is rounded once and used on both sides. Per channel: blocks
// of 16 tokens. Beside the diagonal decays are folded into the operands, from the first token of
// the later block (y) and to the last of the earlier one (z), so that no factor exceeds 1; on the
// diagonal element by element in fp32. So the errors of a pair enter y_i and z_j alike, and cancel
// where its gradient does. Where a contract rounds at pair_diagonal each side has a product of its
// own there: the gradient of a gate then keeps their roundings, e^-g times what it is itself.
#pragma once

#include "reference/backward/emulation/rounder.hpp"

namespace goldenrule::backward {

/// The decays of one chunk: rows are tokens, columns channels or one.
struct ChunkDecay {
  Floats alpha;       ///< of each token
  Sums G;             ///< the cumulated logarithm: fp32 numbers, or such with an error
  Floats start, end;  ///< from the start of the chunk to a token; from a token to the end
  Floats whole;       ///< [1,.] over all of the chunk
  Floats between;     ///< [n,n] D with one gate per head, lower

  [[nodiscard]] bool is_scalar() const { return G.cols() == 1; }
};

/// Of the logarithms themselves, which are added up here. Kernels take decays as differences of
/// these sums, and at strong decay the roundings of the sums are their largest fp32 error. A random
/// run draws them: those of sums in sequence, and of sums in a tree. `alpha` is then what the
/// differences say.
[[nodiscard]] ChunkDecay chunk_decay(const Floats& alpha, const Floats& log_alpha,
                                     Rounder& rounder);

/// S, lower with its diagonal.
[[nodiscard]] Floats pair_products(const ChunkDecay& decay, const Floats& left,
                                   const Floats& right);

struct PairSums {
  Floats y, z;
};
/// What pairs read of the tokens behind: L itself, element by element, and as matrix products do.
struct LeftRows {
  const Floats& exact;
  const Floats& of_products;
};
/// `M` is lower. With one gate per head it has D in it and is rounded.
[[nodiscard]] PairSums pair_sums(const ChunkDecay& decay, const Floats& M, const LeftRows& left,
                                 const Floats& right, Rounder& rounder);

/// Rows scaled by one factor each, or channel by channel.
[[nodiscard]] Floats scaled(const Floats& x, const Floats& by);

}  // namespace goldenrule::backward
