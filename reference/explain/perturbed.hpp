// SPDX-License-Identifier: Apache-2.0
//
// A call whose inputs are off by the roundings of a kernel: what a mistake that amplifies or flips
// roundings makes of them cannot be predicted, but it can be tried.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::explain {

/// What the contract rounds first, as a relative error: half an ulp of the type of q^ and k^, or
/// fp32 itself; 0 where nothing is rounded.
[[nodiscard]] double first_rounding(const contract::Contract& contract);

/// `record` with every element of the named inputs, as far as it has them, multiplied by 1 + u x,
/// x uniform in [-1, 1]. Another seed gives other numbers.
[[nodiscard]] call::Record perturbed(const call::Record& record,
                                     std::initializer_list<const char*> inputs, double u,
                                     std::uint64_t seed);

}  // namespace goldenrule::explain
