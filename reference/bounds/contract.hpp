// SPDX-License-Identifier: Apache-2.0
//
// A contract declares what arithmetic a kernel is allowed: which values are rounded to which type
// and how accurately its elementary functions are evaluated. It is data; the budget follows from
// it and from the data of the call (running.hpp), and nothing is tuned.
#pragma once

#include <optional>
#include <string_view>

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

struct Contract {
  std::string_view name;
  std::string_view meaning;  ///< one line for a person
  /// Unit roundoff of the running state, products and sums; 0: exact until the output is stored.
  double unit_roundoff = 0.0;
  FunctionErrors functions;
  /// Storage of states; absent: whatever type the dataset has.
  std::optional<call::DType> state_dtype;
  /// False: budgets of this contract are not derived yet, so no verdict is given under it.
  bool has_budget = true;
};

/// Throws Error(kArgument) naming every known contract.
[[nodiscard]] const Contract& find_contract(std::string_view name);

/// The contract that a capture without one most plainly claims: by mode and stored state type.
[[nodiscard]] const Contract& default_contract(const call::Record& record);

}  // namespace goldenrule::bounds
