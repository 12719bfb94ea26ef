// SPDX-License-Identifier: Apache-2.0
//
// A contract declares what arithmetic a kernel is allowed: which values are rounded to which type
// and how accurately its elementary functions are evaluated. It is data; the budget follows from
// it and from the data of the call (running.hpp), and nothing is tuned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::bounds {

/// Errors of a kernel's elementary functions. They are systematic (the same argument always errs
/// the same way, and an error of alpha is common to a whole state), so they add linearly.
struct FunctionErrors {
  double exp = 0.0;        ///< relative, at a given argument
  double log_alpha = 0.0;  ///< relative error of log alpha: its products and its exp argument
  double softplus = 0.0;   ///< absolute
  double logit = 0.0;      ///< relative error of a + dt_bias
  double sigmoid = 0.0;    ///< relative, plus `logit` times |b|
  double norm = 0.0;       ///< relative error of the q and k norms, reciprocal root included
};

/// Visits every field as f(name, field). `E` is FunctionErrors or const FunctionErrors.
template <class E, class F>
void for_each_function(E& errors, F&& f) {
  f("exp", errors.exp);
  f("log_alpha", errors.log_alpha);
  f("softplus", errors.softplus);
  f("logit", errors.logit);
  f("sigmoid", errors.sigmoid);
  f("norm", errors.norm);
}

/// Where a chunked kernel rounds. Names follow the chunk form of rule/forms.hpp; D is a decay from
/// one token to another, E from the start of the chunk, C the last token of the chunk.
enum class Point {
  kQuery,         ///< q^
  kKey,           ///< k^
  kBetaV,         ///< beta v, operand of T
  kBetaK,         ///< beta k^ E, operand of T
  kIntra,         ///< both operands of A and q^ k^^T where decays are folded into them
  kInverse,       ///< T = (I + A)^-1, itself exact
  kU,             ///< u
  kW,             ///< w
  kStateOperand,  ///< the state at the start of a chunk as an operand
  kQueryIn,    ///< q^ E, operand of the state (per-channel gates only: else the product is scaled)
  kAttention,  ///< masked q^ D k^^T
  kVNew,       ///< v_new as an operand of the output
  kUpdate,     ///< D v_new (one gate per head) or D k^ (per-channel), operand of the update
  kCarriedState,  ///< the state carried from chunk to chunk
  kGateSum,       ///< the cumulated log gate, before differences of it are taken
};
inline constexpr std::size_t kPoints = 15;

/// The name of a point in JSON and in reports: "query", "state_operand", ..
[[nodiscard]] std::string_view name_of(Point point);

/// One storage type per point; absent: not rounded there.
using RoundingTable = std::array<std::optional<call::DType>, kPoints>;

struct Contract {
  std::string name;
  std::string meaning;  ///< one line for a person
  /// Token by token: unit roundoff of the running state, products and sums; 0: exact until stored.
  double unit_roundoff = 0.0;
  FunctionErrors functions;
  /// Storage of states; absent: whatever type the dataset has.
  std::optional<call::DType> state_dtype;
  std::int64_t chunk = 0;    ///< tokens of a chunk; 0: token by token
  RoundingTable rounding{};  ///< of the chunk form

  [[nodiscard]] const std::optional<call::DType>& at(Point point) const {
    return rounding[static_cast<std::size_t>(point)];
  }
};

/// The contracts that are built in.
[[nodiscard]] const std::vector<Contract>& contracts();

/// Throws Error(kArgument) naming every known contract.
[[nodiscard]] const Contract& find_contract(std::string_view name);

/// The contract that a capture names, or the one that it most plainly claims: prefill is chunked,
/// decode and MTP are recurrent, and a final state of bf16 numbers only was kept in bf16.
[[nodiscard]] const Contract& default_contract(const call::Record& record);

}  // namespace goldenrule::bounds
