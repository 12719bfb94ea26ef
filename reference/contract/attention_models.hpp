// SPDX-License-Identifier: Apache-2.0
//
// The model of kernels of attention: they add in fp32, and what they round on the way they round to
// the type of their operands, whichever that is.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reference/contract/json_words.hpp"
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

/// Visits every key that a contract of this model has in JSON, as f(path, field).
template <class C, class M, class F>
requires std::same_as<std::remove_const_t<M>, Softmax>
void for_each_key(C& /*contract*/, M& model, F&& f) {
  f("unit_roundoff", model.unit_roundoff);
  for (std::size_t i = 0; i < kSoftmaxPoints; ++i) {
    f("round." + std::string(name_of(static_cast<SoftmaxPoint>(i))), model.rounds[i]);
  }
  f("functions.exp2", model.exp2_error);
  f("functions.tanh", model.tanh_error);
}

/// What is wrong with a contract of this model, whose values are legal one by one. The sum and the
/// stored scores say what becomes of weights that are rounded; a budget for other combinations is
/// not derived.
[[nodiscard]] std::optional<Misfit> misfit(const Softmax& model);

struct Contract;
/// The contracts that kernels of attention alone may declare.
[[nodiscard]] std::vector<Contract> attention_contracts();

/// Whether whatever keeps `a` keeps `b` as well. A rounded sum makes the errors of the weights
/// cancel in part or not at all: nothing can be said across it, nor across stored scores, which
/// round other weights.
[[nodiscard]] bool is_no_wider(const Softmax& a, const Softmax& b);

}  // namespace goldenrule::contract
