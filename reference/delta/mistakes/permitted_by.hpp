// SPDX-License-Identifier: Apache-2.0
//
// A contract may permit what this project otherwise calls a mistake: a kernel whose contract
// stores its operands in bf16 may truncate them to tf32. Under such a contract the mistake is
// equivalent to a right kernel, and a suite that does not see it has no hole. Whether that is so
// follows from the declaration of the contract, never from what a suite happened to see; the kill
// matrix prints the largest deviation over budget beside it as evidence.
#pragma once

#include <string>
#include <string_view>

#include "reference/contract/contract.hpp"

namespace goldenrule::delta {

/// Why `contract` permits mistake `name`; empty where it does not.
[[nodiscard]] std::string permitted_by(std::string_view name, const contract::Contract& contract);

}  // namespace goldenrule::delta
