// SPDX-License-Identifier: Apache-2.0
//
// Mistakes inside the algorithm. They cannot be composed around a kernel, so two plain forms of
// the rule in double are written out here with the places where authors err as switches; the
// oracle has no such switches. With every switch in its right position both forms agree with the
// oracle to rounding (tests/delta/mistakes), so that what a switch changes is the mistake alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/record.hpp"
#include "reference/delta/mistakes/order.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Advances one lane over tokens [begin, end): updates `state` [K,V] and rows of `o` and of the
/// corrections `d` [tokens,V].
using Advance = std::function<void(const Lane<double>& lane, const Matrix<double>& v,
                                   std::int64_t begin, std::int64_t end, Matrix<double>& state,
                                   Matrix<double>& o, Matrix<double>& d)>;

/// Runs every lane of the call and returns its outputs in f64, as a Kernel does.
[[nodiscard]] call::TensorMap run_lanes(const call::Record& record, const Advance& advance);

/// Which factor of the correction d = beta (v - S'^T k^) has its beta.
enum class BetaOn { kBoth, kValue, kPrediction };

/// The recurrence: S' = diag(alpha) S, d = beta (v - S'^T k^), S = S' + k^ d^T, o = S^T q^.
struct StepVariant {
  TokenOrder order{};
  bool gate_by_value = false;  ///< alpha of key channel v % K decays value column v
  /// The state is rounded to this type after every token.
  std::optional<call::DType> round_state = std::nullopt;
  bool read_rounded = false;   ///< with it: o from the rounded state, not from the one before
  bool tf32_operands = false;  ///< both products over K truncate their operands to tf32
  BetaOn beta_on = BetaOn::kBoth;
};
[[nodiscard]] Advance step_variant(const StepVariant& variant);

enum class Inverse {
  kExact,       ///< (I + A)^-1
  kDiagonal,    ///< A keeps its diagonal beta <k^, k^>
  kFirstOrder,  ///< I - A
  /// (I - L)(I + L^2)(I + L^4)(I + L^8), L = A in fp16 as in FlashKDA: A from operands in bf16,
  /// 16 x 16 products of fp16 operands, each rounded to fp16 once, and the result rounded to bf16.
  kNeumannFp16,
  kDoublingF32,  ///< that product up to the size of the chunk, every factor and result in fp32
  kThreeRounds,  ///< its terms up to L^7: three rounds of Newton-Schulz
};

/// What exp(G_C), the decay to the end of a chunk of C tokens, is taken from.
enum class EndRow {
  kLast,        ///< G_C of its last row
  kEarly,       ///< of the last row but one
  kZeroInTail,  ///< 0 in a chunk that is not full
  /// Of row C - 7 + 2 (c / 2 % 4) for key channel c: the last row that a thread of a fragment has.
  kByKey,
  kByValue,  ///< the same for value channel c; writes decay as they should
};

/// The chunk form of rule/forms.hpp.
struct ChunkVariant {
  std::int64_t chunk = 64;
  Inverse inverse = Inverse::kExact;
  EndRow end_row = EndRow::kLast;
  std::int64_t restart_row = 0;  ///< > 0: the cumulated gate restarts at this row of a chunk
  bool drop_growth = false;      ///< exp of a positive gate difference gives 0
  ChunkOrder order{};
  bool w_decay_outside = false;  ///< w = T (beta k^ exp(G)) has its exp(G) in front of T
  bool keep_state = true;        ///< false: the state after a chunk lacks the one before it
  /// From this chunk of a sequence on o reads the state of the chunk start transposed; -1: never.
  std::int64_t transposed_from = -1;
  std::int64_t inverse_rows = 0;     ///< > 0: A couples no rows of different blocks of this size
  std::int64_t wrong_base_rows = 0;  ///< > 0: decays between such blocks are d^(log2 e)
  bool wrong_base_outside = false;   ///< so are those from the chunk start and to the chunk end
  /// > 0: decays within such blocks are exp(G_i) exp(-G_j) from their starts, each in fp32.
  std::int64_t factored_rows = 0;
  bool mask_attention_late = false;  ///< exp(G_i - G_j), i < j, is formed and multiplied by 0
  bool mask_inverse_late = false;    ///< the same in A
  bool split_end = false;  ///< exp(G_C) = exp(G_C - g_0) exp(g_0) around all that the chunk leaves
  bool state_operand_f16 = false;  ///< products read the state of the chunk start in fp16
  /// In the last 16 rows of a chunk that is not full rows 4-7 and 8-11 are exchanged in o, or in
  /// what is written to the state.
  bool swap_tail_output = false, swap_tail_writes = false;
};
[[nodiscard]] Advance chunk_variant(const ChunkVariant& variant);
/// The stages on its way, as emulate_stages gives those of honest kernels.
[[nodiscard]] call::TensorMap variant_stages(const call::Record& record,
                                             const ChunkVariant& variant);

}  // namespace goldenrule::delta
