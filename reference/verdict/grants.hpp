// SPDX-License-Identifier: Apache-2.0
//
// Filling in a grant element by element, for the budgets of every family of operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::verdict {

/// sqrt(2 ln(2 n / p)) with p = kFalseAlarm, the stated probability that an honest tensor of n
/// elements leaves its budget: a union bound over sub-Gaussian errors, which needs no independence.
inline constexpr double kFalseAlarm = 1e-6;
[[nodiscard]] double deviation_multiple(std::int64_t n);

/// Zeros for every element, `multiple` sigmas: to be filled with store_grant.
[[nodiscard]] Grant empty_grant(const Exact& exact, double multiple, GrantDetail detail);

/// sigma and bias of element `at`.
void store_grant(Grant& to, std::size_t at, double sigma, double bias);

/// Fills in Grant::infinities of the outputs that `record` holds: what `contract` grants them is
/// there, and the types in which they are stored are those of the record.
void admit_infinities(const call::Record& record, const contract::Contract& contract,
                      Expectations& expected);

}  // namespace goldenrule::verdict
