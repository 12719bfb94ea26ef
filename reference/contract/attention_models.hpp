// SPDX-License-Identifier: Apache-2.0
//
// The model of kernels of attention: they add in fp32, and what they round on the way they round to
// the type of their operands, whichever that is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/contract/rounding.hpp"

namespace goldenrule::contract {

/// What a kernel of attention may round to the type of q, beside o.
enum class SoftmaxPoint : std::uint8_t {
  kScores,   ///< <q,k> and scale <q,k> where they are stored, and the normalised weights then
  kWeights,  ///< exp(s - m) as an operand of the product with V
  kSum,      ///< the weights in the sum that divides, which is of the unrounded ones else
};
inline constexpr std::size_t kSoftmaxPoints = 3;
[[nodiscard]] std::string_view name_of(SoftmaxPoint point);

/// Sums in fp32 of weights exp(s - m).
struct Softmax {
  static constexpr auto kFamily = call::Family::kAttention;
  double unit_roundoff = 0x1p-24;
  std::array<bool, kSoftmaxPoints> rounds{};  ///< to the type of q
  double exp2_error = 0x1p-22;                ///< relative, at a given argument
  double tanh_error = 0x1p-11;  ///< relative: the approximate instruction that kernels use

  [[nodiscard]] bool at(SoftmaxPoint p) const { return rounds[static_cast<std::size_t>(p)]; }
};

struct Contract;
/// The contracts that kernels of attention alone may declare.
[[nodiscard]] std::vector<Contract> attention_contracts();

/// Whether whatever keeps `a` keeps `b` as well. A rounded sum makes the errors of the weights
/// cancel in part or not at all: nothing can be said across it, nor across stored scores, which
/// round other weights.
[[nodiscard]] bool is_no_wider(const Softmax& a, const Softmax& b);

}  // namespace goldenrule::contract
