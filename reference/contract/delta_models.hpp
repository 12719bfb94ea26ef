// SPDX-License-Identifier: Apache-2.0
//
// Models of kernels of the delta rule. A *recurrent* kernel works token by token in fp32. A
// *chunked* one works on chunks of tokens with matrix products whose operands may be rounded; its
// sums, and whatever is not rounded further, are fp32. Each model holds what it alone can be asked:
// whoever wants a chunk size, a form or a point of the chunk form must have a Chunked in hand.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reference/contract/json_words.hpp"
#include "reference/contract/rounding.hpp"

namespace goldenrule::contract {

/// How a chunked kernel forms the corrections v_new of a chunk, with T = (I + A)^-1.
enum class Form : std::uint8_t {
  kWY,      ///< w = T (beta k^ E), u = T (beta v), v_new = u - w S
  kDirect,  ///< X = v - E k^ S, v_new = beta X + (T - I) beta X: the diagonal of T stays fp32
};

/// Values that kernels of every kind may round before anything is made of them. Rounding points are
/// these and those of the chunk form, numbered on: activations 0 to 3, then Point.
enum class Activation : std::uint8_t {
  kQuery,  ///< q^, the result of the norm
  kKey,    ///< k^
  kBeta,   ///< beta
  kGate,   ///< log alpha of a token; alpha itself where the call gives that
};
inline constexpr std::size_t kActivations = 4;

/// Where a chunked kernel alone rounds. Names follow the chunk form of rule/forms.hpp; D is a decay
/// from one token to another, E from the start of the chunk, C the last token of the chunk.
enum class Point : std::uint8_t {
  kBetaV = kActivations,  ///< beta v, operand of T
  kBetaK,                 ///< beta k^ E, operand of T
  kIntra,                 ///< both operands of A and q^ k^^T where decays are folded into them
  kInverse,               ///< T = (I + A)^-1, itself exact; direct form: (T - I) beta
  kU,                     ///< u
  kW,                     ///< w
  kStateOperand,          ///< the state at the start of a chunk as an operand
  kKeyIn,      ///< k^ E, operand of the state in the direct form (per-channel gates only)
  kResidual,   ///< X of the direct form, operand of T
  kQueryIn,    ///< q^ E, operand of the state (per-channel gates only: else the product is scaled)
  kAttention,  ///< masked q^ D k^^T
  kVNew,       ///< v_new as an operand of the output
  kUpdate,     ///< D v_new (one gate per head) or D k^ (per-channel), operand of the update
  kCarriedState,  ///< the state carried from chunk to chunk
  kGateSum,       ///< the cumulated log gate, before differences of it are taken
  kSegmentMap,    ///< the map of a segment and the state in front of it, where they are multiplied
};
inline constexpr std::size_t kPoints = 20;  ///< the activations included

/// The name of a rounding point in JSON and in reports, by its number: "query", "state_operand", ..
[[nodiscard]] std::string_view point_name(std::size_t point);

template <>
struct JsonWords<Form> {
  static constexpr std::array<std::string_view, 2> kNames{"wy", "direct"};
  static std::size_t place(Form form) { return static_cast<std::size_t>(form); }
  static Form at(std::size_t place) { return static_cast<Form>(place); }
};

/// Token by token.
struct Recurrent {
  static constexpr auto kFamily = call::Family::kDelta;
  double unit_roundoff = 0.0;  ///< of the state, products and sums; above 0 where it is declared
  std::array<Rounding, kActivations> rounding{};
};

/// By chunks of tokens.
struct Chunked {
  static constexpr auto kFamily = call::Family::kDelta;
  double unit_roundoff = 0.0;  ///< of the state, products and sums; above 0 where it is declared
  std::int64_t chunk = 0;      ///< tokens of a chunk, at least 1
  /// Longer sequences may be walked in segments of so many tokens or more
  /// (delta/emulation/segments.hpp); 0: never.
  std::int64_t segment = 0;
  Form form = Form::kWY;
  std::array<Rounding, kPoints> rounding{};

  [[nodiscard]] Rounding& at(Activation a) { return rounding[static_cast<std::size_t>(a)]; }
  [[nodiscard]] Rounding& at(Point p) { return rounding[static_cast<std::size_t>(p)]; }
  [[nodiscard]] const Rounding& at(Activation a) const {
    return rounding[static_cast<std::size_t>(a)];
  }
  [[nodiscard]] const Rounding& at(Point p) const { return rounding[static_cast<std::size_t>(p)]; }

  /// Whether operands of the products are rounded to less than fp32: errors of fp32 arithmetic are
  /// then small beside those roundings, wherever these have any effect.
  [[nodiscard]] bool has_coarse_operands() const;
};

/// Visits every key that a contract of this model has in JSON, as f(path, field): "chunk", of
/// "round" and "functions" name by name. `C` and `M` may be const.
template <class C, class M, class F>
requires std::same_as<std::remove_const_t<M>, Recurrent> ||
    std::same_as<std::remove_const_t<M>, Chunked>
void for_each_key(C& contract, M& model, F&& f) {
  f("state", contract.state_dtype);
  if constexpr (std::same_as<std::remove_const_t<M>, Chunked>) {
    f("chunk", model.chunk);
    f("segment", model.segment);
    f("form", model.form);
  }
  f("unit_roundoff", model.unit_roundoff);
  for (std::size_t i = 0; i < model.rounding.size(); ++i) {
    f("round." + std::string(point_name(i)), model.rounding[i]);
  }
  for_each_function(contract.functions, [&](std::string_view name, auto& error) {
    f("functions." + std::string(name), error);
  });
}

/// What is wrong with a contract of this model, whose values are legal one by one.
[[nodiscard]] std::optional<Misfit> misfit(const Chunked& model);

struct Contract;
/// The contracts that kernels of the delta rule alone may declare.
[[nodiscard]] std::vector<Contract> delta_contracts();

/// Whether kernels of these models round the same values, so that the roundings of `b` can be
/// compared with those of `a` one by one (Contract::roundings). Fp32 arithmetic token by token is
/// what a chunk of one token does. Chunks of other sizes and other forms round other values:
/// nothing can be said.
[[nodiscard]] inline bool is_no_wider(const Recurrent& /*a*/, const Recurrent& /*b*/) {
  return true;
}
[[nodiscard]] inline bool is_no_wider(const Recurrent& /*a*/, const Chunked& /*b*/) { return true; }
[[nodiscard]] bool is_no_wider(const Chunked& a, const Chunked& b);

}  // namespace goldenrule::contract
