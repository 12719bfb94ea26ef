// SPDX-License-Identifier: Apache-2.0
//
// Which built-in contract a record keeps, and by what it differs from the one that it was judged
// by. A refused kernel may be an honest one of another kind (its beta is bf16, it works in chunks);
// a passed one may have been judged by a contract so wide that the pass says little. In both cases
// the answer is the tightest contract that the outputs keep.
//
// Tightness is measured on the call itself: the sum over the outputs of the logarithm of the root
// mean square of the budget.
#pragma once

#include <optional>
#include <string>

#include "reference/contract/contract.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

struct Permit {
  std::string contract;  ///< a built-in one
  std::string meaning;   ///< of that contract
  /// "beta in bf16": the one rounding point that makes the contract judged by permit the outputs as
  /// well; empty where no single one does.
  std::string difference;
};

/// Core-seconds that all contracts together may take, as estimated: every one costs a verdict.
inline constexpr double kPermitSeconds = 300.0;

/// The tightest built-in contract that the outputs keep; nothing where they keep none, where that
/// is the one that they were judged by, or where trying takes more than `most_seconds`. Judges in
/// the tier of the judgement, whose exact values serve all contracts.
[[nodiscard]] std::optional<Permit> tightest_permit(const verdict::Judgement& judgement,
                                                    double most_seconds = kPermitSeconds);

/// Whether no element of any output takes a hundredth of its budget, those outputs aside that are
/// exact; false where all are.
[[nodiscard]] bool is_far_within(const verdict::CaseReport& report);

}  // namespace goldenrule::explain
