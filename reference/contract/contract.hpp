// SPDX-License-Identifier: Apache-2.0
//
// A contract declares what arithmetic a kernel is allowed: which values are rounded to which format
// and how accurately its elementary functions are evaluated. It is data; the budget follows from
// it and from the data of the call (running.hpp, oracle/spread.hpp), and nothing is tuned.
//
// There are three kinds. An *ideal* kernel returns the exact result, rounded once. A *recurrent*
// one works token by token in fp32. A *chunked* one works on chunks of tokens with matrix products
// whose operands may be rounded; its sums, and whatever is not rounded further, are fp32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::contract {

enum class Kind : std::uint8_t { kIdeal, kRecurrent, kChunked };

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
  double logit = 0.0;      ///< relative error of a + dt_bias
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

/// Where a kernel rounds. The first four are activations, which kernels of every kind may round;
/// the others are points of a chunked kernel. Names follow the chunk form of rule/forms.hpp; D is a
/// decay from one token to another, E from the start of the chunk, C the last token of the chunk.
enum class Point : std::uint8_t {
  kQuery,         ///< q^, the result of the norm
  kKey,           ///< k^
  kBeta,          ///< beta
  kGate,          ///< log alpha of a token; alpha itself where the call gives that
  kBetaV,         ///< beta v, operand of T
  kBetaK,         ///< beta k^ E, operand of T
  kIntra,         ///< both operands of A and q^ k^^T where decays are folded into them
  kInverse,       ///< T = (I + A)^-1, itself exact; direct form: (T - I) beta
  kU,             ///< u
  kW,             ///< w
  kStateOperand,  ///< the state at the start of a chunk as an operand
  kKeyIn,         ///< k^ E, operand of the state in the direct form (per-channel gates only)
  kResidual,      ///< X of the direct form, operand of T
  kQueryIn,    ///< q^ E, operand of the state (per-channel gates only: else the product is scaled)
  kAttention,  ///< masked q^ D k^^T
  kVNew,       ///< v_new as an operand of the output
  kUpdate,     ///< D v_new (one gate per head) or D k^ (per-channel), operand of the update
  kCarriedState,  ///< the state carried from chunk to chunk
  kGateSum,       ///< the cumulated log gate, before differences of it are taken
};
inline constexpr std::size_t kPoints = 19;
inline constexpr std::size_t kActivations = 4;

/// The name of a point in JSON and in reports: "query", "state_operand", ..
[[nodiscard]] std::string_view name_of(Point point);
[[nodiscard]] std::string_view name_of(Kind kind);
[[nodiscard]] std::string_view name_of(Form form);

/// One format per point; absent: not rounded there, beyond the fp32 arithmetic.
using RoundingTable = std::array<std::optional<Format>, kPoints>;

struct Contract {
  std::string name;
  std::string meaning;  ///< one line for a person
  Kind kind = Kind::kIdeal;
  /// Unit roundoff of the state, products and sums; 0 in an ideal contract only.
  double unit_roundoff = 0.0;
  FunctionErrors functions{};
  /// Storage of states; absent: whatever type the dataset has.
  std::optional<call::DType> state_dtype{};
  std::int64_t chunk = 0;    ///< tokens of a chunk; 0: not chunked
  Form form = Form::kWY;     ///< of a chunked contract
  RoundingTable rounding{};  ///< activations; of a chunked contract all points

  [[nodiscard]] const std::optional<Format>& at(Point point) const {
    return rounding[static_cast<std::size_t>(point)];
  }
  /// Largest relative error of rounding at `point`; 0 where nothing is rounded.
  [[nodiscard]] double unit_at(Point point) const {
    return at(point) ? contract::unit_roundoff(*at(point)) : 0.0;
  }
  /// Whether operands of the products are rounded to less than fp32: errors of fp32 arithmetic are
  /// then small beside those roundings, wherever these have any effect.
  [[nodiscard]] bool has_coarse_operands() const;
};

/// The contracts that are built in, roughly from the tightest to the widest.
[[nodiscard]] const std::vector<Contract>& contracts();

/// Throws Error(kArgument) naming every known contract.
[[nodiscard]] const Contract& find_contract(std::string_view name);

/// Whether whatever keeps `a` keeps `b` as well, so that judging by `a` can only be stricter. A
/// partial order, read off the declarations: types, unit roundoffs and function errors.
[[nodiscard]] bool is_no_wider(const Contract& a, const Contract& b);

}  // namespace goldenrule::contract
