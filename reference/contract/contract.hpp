// SPDX-License-Identifier: Apache-2.0
//
// A contract declares what arithmetic a kernel is allowed: which values are rounded to which format
// and how accurately its elementary functions are evaluated. It is data; the budget follows from
// it and from the data of the call (running.hpp and spread.hpp of delta/budget), and nothing is
// tuned.
//
// What the kernel is, its model, is one of four. An *ideal* kernel returns the exact result,
// rounded once. A *recurrent* one works token by token in fp32. A *chunked* one works on chunks of
// tokens with matrix products whose operands may be rounded; its sums, and whatever is not rounded
// further, are fp32. A *softmax* kernel is one of attention: it adds in fp32, and what it rounds on
// the way it rounds to the type of its operands, whichever that is. The second and the third are of
// the delta rule. Each model holds what it alone can be asked: whoever wants a chunk size, a
// form or a point of the chunk form must have a Chunked in hand. The types of stored states and the
// errors of functions are common to all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fixtures/call/convention.hpp"
#include "fixtures/call/dtype.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::contract {

/// How a chunked kernel forms the corrections v_new of a chunk, with T = (I + A)^-1.
enum class Form : std::uint8_t {
  kWY,      ///< w = T (beta k^ E), u = T (beta v), v_new = u - w S
  kDirect,  ///< X = v - E k^ S, v_new = beta X + (T - I) beta X: the diagonal of T stays fp32
};

/// Errors of a kernel's elementary functions. They are systematic (the same argument always errs
/// the same way, and an error of alpha is common to a whole state), so they add linearly.
struct FunctionErrors {
  double exp = 0.0;        ///< relative, at a given argument
  double log = 0.0;        ///< absolute, of log alpha where a chunked kernel is given alpha itself
  double log_alpha = 0.0;  ///< relative error of log alpha: its products and its exp argument
  double softplus = 0.0;   ///< absolute, and no more than softplus itself: see running.hpp
  double logit = 0.0;      ///< relative error of a + dt_bias; exp(A_log) times it takes exp as well
  double sigmoid = 0.0;    ///< relative, plus `logit` times |b| sigmoid(-b)
  double norm = 0.0;       ///< relative error of the q and k norms, reciprocal root included

  bool operator==(const FunctionErrors&) const = default;
};

/// Visits every field as f(name, field). `E` is FunctionErrors or const FunctionErrors.
template <class E, class F>
void for_each_function(E& errors, F&& f) {
  f("exp", errors.exp);
  f("log", errors.log);
  f("log_alpha", errors.log_alpha);
  f("softplus", errors.softplus);
  f("logit", errors.logit);
  f("sigmoid", errors.sigmoid);
  f("norm", errors.norm);
}

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
[[nodiscard]] std::string_view name_of(Form form);

/// What a value is rounded to; nothing: not rounded, beyond the fp32 arithmetic.
using Rounding = std::optional<Format>;
inline constexpr double kFp32 = 0x1p-24;  ///< the unit roundoff of fp32

/// Largest relative error of it; 0 where nothing is rounded.
[[nodiscard]] inline double unit_of(const Rounding& rounding) {
  return rounding ? unit_roundoff(*rounding) : 0.0;
}

/// The exact result, rounded once to the type that it is stored in.
struct Ideal {};

/// Token by token.
struct Recurrent {
  double unit_roundoff = 0.0;  ///< of the state, products and sums; above 0 where it is declared
  std::array<Rounding, kActivations> rounding{};
};

/// By chunks of tokens.
struct Chunked {
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
  double unit_roundoff = 0x1p-24;
  std::array<bool, kSoftmaxPoints> rounds{};  ///< to the type of q
  double exp2_error = 0x1p-22;                ///< relative, at a given argument
  double tanh_error = 0x1p-11;  ///< relative: the approximate instruction that kernels use

  [[nodiscard]] bool at(SoftmaxPoint p) const { return rounds[static_cast<std::size_t>(p)]; }
};

using Model = std::variant<Ideal, Recurrent, Chunked, Softmax>;
inline constexpr std::array<std::string_view, 4> kModelNames{"ideal", "recurrent", "chunked",
                                                             "softmax"};
static_assert(kModelNames.size() == std::variant_size_v<Model>);

struct Contract {
  std::string name;
  std::string meaning;  ///< one line for a person
  /// Storage of states; absent: whatever type the dataset has.
  std::optional<call::DType> state_dtype{};
  FunctionErrors functions{};  ///< none of an ideal kernel
  Model model{};

  [[nodiscard]] std::string_view model_name() const { return kModelNames[model.index()]; }
  [[nodiscard]] bool is_ideal() const { return std::holds_alternative<Ideal>(model); }
  /// Whether kernels of that family may declare it; an ideal one is of all.
  [[nodiscard]] bool is_of(call::Family family) const {
    const auto own = softmax() != nullptr ? call::Family::kAttention : call::Family::kDelta;
    return is_ideal() || own == family;
  }
  /// Nothing unless the kernel is one of attention.
  [[nodiscard]] const Softmax* softmax() const { return std::get_if<Softmax>(&model); }
  /// Nothing unless the kernel is chunked.
  [[nodiscard]] const Chunked* chunked() const { return std::get_if<Chunked>(&model); }

  /// What every kernel can be asked. Unit roundoff of its arithmetic; 0 in an ideal contract only.
  [[nodiscard]] double unit_roundoff() const;
  /// Every rounding point of the delta rule that this model has, by number: none, the activations,
  /// or all.
  [[nodiscard]] std::span<const Rounding> roundings() const;
  [[nodiscard]] std::span<Rounding> roundings();
  [[nodiscard]] Rounding at(Activation activation) const;
  /// Tokens whose results are computed together, so that a NaN in one may reach all of them.
  [[nodiscard]] std::int64_t tokens_together() const;
};

/// The contracts that are built in, roughly from the tightest to the widest.
[[nodiscard]] const std::vector<Contract>& contracts();

/// Those that kernels of that family may declare.
[[nodiscard]] const std::vector<Contract>& contracts_of(call::Family family);

/// Throws Error(kArgument) naming every known contract.
[[nodiscard]] const Contract& find_contract(std::string_view name);

/// Whether whatever keeps `a` keeps `b` as well, so that judging by `a` can only be stricter. A
/// partial order, read off the declarations: types, unit roundoffs and function errors.
[[nodiscard]] bool is_no_wider(const Contract& a, const Contract& b);

}  // namespace goldenrule::contract
