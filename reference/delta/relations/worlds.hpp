// SPDX-License-Identifier: Apache-2.0
//
// Exact worlds: calls in which no kernel has an excuse for a single bit, because every number that
// it can form is a number of its types, in whatever order it adds.
//
// A key has m = 4^e entries +-2^-e and zeros elsewhere; the keys of a block of m channels are rows
// of one Hadamard matrix, so any two keys are equal or orthogonal: k_s . k_t is 1 or 0. Beta is 1,
// alpha is 0 or 1 (per block of channels where gates are per channel), v and the start state are
// integers of magnitude at most a. Then
//
//   d_t = v_t - k_t . S' = v_t - k_t . S_0' - sum_s (k_t . k_s) d_s    is a multiple of 2^-e,
//   S_t = S' + k_t d_t^T                                               ... of 2^-2e,
//   products and partial sums of k . S and q . S                       ... of 2^-3e.
//
// Sizes. In a value column and a block, a token replaces the component along its key by v_t and
// leaves the m - 1 orthogonal ones, so the column has components of S_0 (norm at most a sqrt(m))
// and of v (m of them, at most a each): its norm is at most a sqrt(2 m), which also bounds its
// elements and, by Cauchy-Schwarz, every partial sum of k . S over any subset of channels; |d| is
// at most a more. Hence numbers of p bits hold
//
//   the state as an operand:   a sqrt(2 m) 2^2e          <= 2^p
//   v_new as an operand:       (a sqrt(2 m) + a) 2^e     <= 2^p      (not the larger for m >= 4)
//   sums (fp32, p = 24):       a sqrt(2 m) 2^3e          <= 2^24.
//
// The chunk form adds nothing larger: A is 0 or 1, T = (I + A)^-1 is 0 or +-1 (equal keys form
// chains), u and w are v, k and differences of two of them. So fp32 is exact for m = 16, 64, 256
// with a = 8, and operands of bf16 (p = 8) for m = 16 with a = 1: 5.7 * 16 = 91 <= 256. What is
// stored is rounded once, from the exact number. TF32 or bf16 operands where fp32 is declared
// show at once.
//
// A chunked kernel cumulates log alpha, and may take that of a small number in place of -inf; what
// is behind alpha = 0 is then small instead of 0. So all alphas are 1 for it.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/delta/relations/relation.hpp"

namespace goldenrule::relations {

struct World {
  std::int64_t entries = 64;   ///< m: 4, 16, 64 or 256; K is a multiple of it
  std::int64_t magnitude = 8;  ///< a
  bool erases = true;          ///< some alphas are 0
};

/// p of operands and of sums that the world needs.
[[nodiscard]] int operand_bits(const World& world);
[[nodiscard]] int sum_bits(const World& world);

/// The worlds in which kernels of `contract` are exact.
[[nodiscard]] std::vector<World> worlds_of(const contract::Contract& contract);

/// What a call looks like; the world says what it holds.
struct WorldShape {
  call::Op op = call::Op::kGatedDeltaRule;
  call::Mode mode = call::Mode::kPrefill;
  call::StateLayout layout = call::StateLayout::kVK;
  std::int64_t rows = 3;
  std::int64_t T = 1;  ///< MTP; prefill: row n has T + n tokens
  std::int64_t H = 1, HV = 2, K = 64, V = 16;
};

/// A call with gate=linear, beta=direct, no norm and scale 1, in fp32 throughout, all rows from a
/// start state. The same arguments give the same bytes. Throws Error(kArgument) for entries that
/// are not a power of 4 or do not divide K.
[[nodiscard]] call::Record make_world(const World& world, const WorldShape& shape,
                                      std::uint64_t seed);

/// Whether every output of `kernel` on a call of an exact world is the exact result, rounded once
/// to the type that `contract` stores it in.
[[nodiscard]] Outcome check_world(const call::Record& record, const Kernel& kernel,
                                  const contract::Contract& contract);

}  // namespace goldenrule::relations
