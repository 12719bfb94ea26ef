// SPDX-License-Identifier: Apache-2.0
//
// The refusal of a contract that says nothing of a call.
#pragma once

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {

/// Throws Error(kArgument) for a contract that kernels of `family` cannot declare, naming those
/// that they can.
void require_family(const Contract& contract, call::Family family);

}  // namespace goldenrule::contract
