// SPDX-License-Identifier: Apache-2.0
//
// A contract and the family of a call: the refusal of one that says nothing of it, and what becomes
// of a claim.
#pragma once

#include "reference/contract/contract.hpp"

namespace goldenrule::contract {

/// Throws Error(kArgument) for a contract that kernels of `family` cannot declare, naming those
/// that they can.
void require_family(const Contract& contract, call::Family family);

/// The contract by which a call is judged that implies `implied` and claims the contract of name
/// `claim` (empty: none): a claim is followed where it is no wider. One of another family is
/// returned too, for judgement to refuse. Throws Error(kArgument) for an unknown name.
[[nodiscard]] const Contract& claimed_or_implied(std::string_view claim, const Contract& implied,
                                                 call::Family family);

}  // namespace goldenrule::contract
