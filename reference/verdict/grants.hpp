// SPDX-License-Identifier: Apache-2.0
//
// Filling in a grant element by element, for the budgets of every family of operations.
#pragma once

#include <cstddef>

#include "reference/verdict/expectation.hpp"

namespace goldenrule::verdict {

/// Zeros for every element, `multiple` sigmas: to be filled with store_grant.
[[nodiscard]] Grant empty_grant(const Exact& exact, double multiple, GrantDetail detail);

/// sigma and bias of element `at`.
void store_grant(Grant& to, std::size_t at, double sigma, double bias);

}  // namespace goldenrule::verdict
