// SPDX-License-Identifier: Apache-2.0
//
// Mistakes inside the algorithm. They cannot be composed around a kernel, so two plain forms of
// the rule in double are written out here with the places where authors err as switches; the
// oracle has no such switches. With every switch in its right position both forms agree with the
// oracle to rounding (tests/mistakes), so that what a switch changes is the mistake alone.
#pragma once

#include <cstdint>
#include <functional>

#include "fixtures/call/record.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Advances one lane over tokens [begin, end): updates `state` [K,V] and rows of `o` [tokens,V].
using Advance =
    std::function<void(const Lane<double>& lane, const Matrix<double>& v, std::int64_t begin,
                       std::int64_t end, Matrix<double>& state, Matrix<double>& o)>;

/// Runs every lane of the call and returns its outputs in f64, as a Kernel does.
[[nodiscard]] call::TensorMap run_lanes(const call::Record& record, const Advance& advance);

/// The recurrence: S' = diag(alpha) S, d = beta (v - S'^T k^), S = S' + k^ d^T, o = S^T q^.
struct StepVariant {
  bool delta = true;              ///< false: d = beta v
  bool decay_first = true;        ///< false: d from S, then S <- diag(alpha) (S + k^ d^T)
  bool read_updated = true;       ///< false: o from the state before the token
  bool gate_by_value = false;     ///< alpha of key channel v % K decays value column v
  bool round_state_bf16 = false;  ///< after every token
  bool read_rounded = false;      ///< with it: o from the rounded state, not from the one before
  bool tf32_operands = false;     ///< both products over K truncate their operands to tf32
};
[[nodiscard]] Advance step_variant(const StepVariant& variant);

enum class Inverse {
  kExact,       ///< (I + A)^-1
  kDiagonal,    ///< A keeps its diagonal beta <k^, k^>
  kFirstOrder,  ///< I - A
  /// (I - L)(I + L^2)(I + L^4)(I + L^8), L = A in fp16 as in FlashKDA: A from operands in bf16,
  /// 16 x 16 products of fp16 operands, each rounded to fp16 once, and the result rounded to bf16.
  kNeumannFp16,
};

/// The chunk form of rule/forms.hpp.
struct ChunkVariant {
  std::int64_t chunk = 64;
  Inverse inverse = Inverse::kExact;
  bool end_row_early = false;    ///< the decay of a chunk ends at its last row but one
  std::int64_t restart_row = 0;  ///< > 0: the cumulated gate restarts at this row of a chunk
  bool drop_growth = false;      ///< exp of a positive gate difference gives 0
};
[[nodiscard]] Advance chunk_variant(const ChunkVariant& variant);

}  // namespace goldenrule::delta
