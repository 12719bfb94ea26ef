// SPDX-License-Identifier: Apache-2.0
//
// Mistakes inside the adjoint of the recurrence. They cannot be composed around a kernel, so two
// plain forms of it in double are written out here, token by token and in chunks, with the places
// where authors err as switches; the oracle has no such switches. With every switch in its right
// position both agree with the oracle to rounding (tests/backward), so that what a switch changes
// is the mistake alone. Token by token as in rule/adjoint_tile.hpp. Chunks of C tokens, with h the
// state before one, H the cumulated log alpha within it, E_ij = e^(H_i - H_j) per key channel and
// dh' the gradient at its end:
//
//   A_ij = beta_i <k_i E_ij, k_j>, j < i      T = (I + A)^-1      w = T (beta k e^H)
//   u = T (beta v)      v_new = u - w h      P_ij = <q_i E_ij, k_j>, j <= i
//   du = P^T do + (k e^(H_C - H)) dh'        dh = e^(H_C) dh' + (q e^H)^T do - w^T du
//   dP = tril(do v_new^T)                    dq_i = e^(H_i) h do_i + sum_j dP_ij E_ij k_j
//   kw_j = e^(H_C - H_j) dh' v_new_j + sum_i dP_ij E_ij q_i
//   dw = -du h^T      dT = dw (beta k e^H)^T + du (beta v)^T      kb = T^T dw      vb = T^T du
//   dM = -stril(T^T stril(dT) T^T)           dv = beta vb
//   row_i = sum_j dM_ij E_ij k_j             col_j = sum_i dM_ij E_ij beta_i k_i
//   ke = beta (row + e^H kb)                 dk = kw + ke + col
//   dbeta = vb . v + kb . (k e^H) + row . k  raw = q dq - k kw + k ke - k col
//   raw_C += e^(H_C) sum_v h dh' + sum_s k_s e^(H_C - H_s) (dh' v_new_s)
//   dg_t = sum_(s >= t) raw_s within the chunk.
//
// Decays are products of alphas, so alpha = 0 needs no exception but one: there dg is 0, and what
// the sum of raw leaves is rounding. A gradient by alpha itself is dg / alpha here, for which alpha
// must not be 0.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reference/backward/rule/evaluate.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::backward {

using delta::Matrix;

inline constexpr std::int64_t kChunk = 64;   ///< tokens of a chunk of most kernels
inline constexpr std::int64_t kSegment = 2;  ///< chunks that a rank has in the variants
inline constexpr std::int64_t kBlock = 64;   ///< value columns of a block of most kernels

/// A lane of a plain call (chain.hpp).
struct VariantLane {
  Matrix<double> q, k;                   ///< [T,K]
  Matrix<double> alpha;                  ///< [T,K]
  Matrix<double> v, output_gradient;     ///< [T,V]
  Matrix<double> start, state_gradient;  ///< [K,V]
  std::vector<double> beta;

  [[nodiscard]] std::int64_t tokens() const { return q.rows(); }
};

/// Its gradients.
struct VariantGradients {
  Matrix<double> dq, dk, dv;
  Matrix<double> dg;  ///< [T,K], by log alpha; of chunks the summands raw
  std::vector<double> dbeta;
  Matrix<double> dstart;

  explicit VariantGradients(const VariantLane& lane);
};

/// The adjoint, token by token.
struct TokenVariant {
  bool erases = true;       ///< false: G is carried on without - beta k dd^T
  bool by_residual = true;  ///< false: dbeta = dd . v
  bool state_in_dk = true;  ///< false: dk = beta G r
};
[[nodiscard]] VariantGradients token_adjoint(const TokenVariant& variant, const VariantLane& lane);

/// What dM is.
enum class InverseAdjoint {
  kRight,
  kNegated,       ///< of the other sign
  kDiagonal,      ///< with its diagonal
  kOneFactor,     ///< one T^T is missing
  kUntransposed,  ///< T where T^T belongs
};

/// What a chunk hands to the one before it.
enum class Carry {
  kRight,
  kStateGradient,  ///< dfinal_state is added to it again
  kNoErase,        ///< du in it lacks what comes from dh'
  kLost,           ///< nothing, at the first chunk of a rank
  kWarmUp,         ///< there, what the next chunk alone gives
};

/// How the chunk form forms the decays of its pairs.
enum class PairDecay {
  kExact,
  kShifted,       ///< alpha_j .. alpha_(i-1) for alpha_(j+1) .. alpha_i
  kFromLastRow,   ///< e^(H_i - H_C) e^(H_C - H_j), in fp32
  kRoundedSides,  ///< k_j e^-H_j and q_i e^H_i are rounded to bf16
};

/// What the row that the chunk ends with gets beside its own raw.
enum class LastRow {
  kRight,
  kNoState,     ///< without <h, dh'>
  kNoKeys,      ///< without the sum over keys
  kFullChunks,  ///< nothing where the chunk is not full
};

/// What raw is made of.
enum class RawTerms {
  kAll,
  kNoErase,  ///< q dq - k kw
  kNoRow,    ///< k ke lacks beta k row
};

/// Rows of raw that are summed up to dg.
enum class GateSum {
  kReverse,
  kForward,          ///< s <= t
  kExclusive,        ///< s > t
  kOverSequence,     ///< not restarted at chunks
  kOverPackedChunk,  ///< restarted at every 64th token of the packed axis, not at sequences
};

struct ChunkVariant {
  bool dp_diagonal = true;          ///< false: dP strictly lower
  bool dp_reversed = false;         ///< dP_ij, j >= i
  bool state_after = false;         ///< h is the state after the chunk
  bool state_f16 = false;           ///< h is read from fp16
  bool stored_decayed = false;      ///< what reads dh' but the carry gets e^(H_C) dh'
  bool corrected_in_dt = false;     ///< v_new for v in dT
  bool corrected_in_dbeta = false;  ///< v_new for v in dbeta
  bool first_block_in_dt = false;   ///< dT without the value columns behind the first block
  InverseAdjoint inverse = InverseAdjoint::kRight;
  Carry carry = Carry::kRight;
  PairDecay pairs = PairDecay::kExact;
  LastRow last_row = LastRow::kRight;
  RawTerms raw = RawTerms::kAll;
  GateSum sum = GateSum::kReverse;
};
/// What a variant has on the way, as its author would store it: names of rule/stages.hpp, rows are
/// tokens, of states the key channels of chunk after chunk. It has no u, and no o.
using VariantStages = std::map<std::string, Matrix<double>>;
[[nodiscard]] VariantGradients chunk_adjoint(const ChunkVariant& variant, const VariantLane& lane,
                                             VariantStages* stages = nullptr);

/// The outputs of a plain call, in f64.
[[nodiscard]] call::TensorMap variant_outputs(const TokenVariant& variant,
                                              const call::Record& plain);
[[nodiscard]] call::TensorMap variant_outputs(const ChunkVariant& variant,
                                              const call::Record& plain);
/// Its stages in chunks of kChunk, in f64.
[[nodiscard]] call::TensorMap variant_stages(const ChunkVariant& variant,
                                             const call::Record& plain);

}  // namespace goldenrule::backward
