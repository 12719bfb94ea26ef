// SPDX-License-Identifier: Apache-2.0
//
// The recurrence of rule/recurrent.hpp in fp32, each operation rounded to nearest, in the order in
// which the definition says it, with exact functions. What perturbed_recurrence.hpp replaces by
// fresh errors is here what a kernel does: an error is a function of the number that is rounded, so
// where numbers repeat, errors add up (spread.hpp).
#pragma once

#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/pieces.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Runs one lane. `v` is [tokens,V], `initial` [K,V]; `positions` ascend and lie in (0, tokens].
/// q^ and k^ are rounded to nearest where the contract says so.
[[nodiscard]] KeptForm<double> nearest_recurrence(const Lane<double>& lane, const Matrix<double>& v,
                                                  const Matrix<double>& initial,
                                                  std::span<const std::int64_t> positions,
                                                  const contract::Contract& contract);

}  // namespace goldenrule::delta
