// SPDX-License-Identifier: Apache-2.0
//
// Contracts and tiers as users name them.
#pragma once

#include <optional>
#include <string>

#include "reference/contract/contract.hpp"
#include "reference/scalar/precision.hpp"

namespace goldenrule::arbiter {

/// auto (nullopt), double, quad or multi; Error(kArgument) otherwise.
[[nodiscard]] std::optional<scalar::Precision> parse_precision(const std::string& name);

/// The contract `name`, a built-in one or a .json file: the one place where such a file is loaded.
/// Reports print its name and fixtures make a group of it, so it must be printable ASCII and may
/// not be that of a built-in contract, which would lend it a trust that it has not earned. Throws
/// Error.
[[nodiscard]] contract::Contract named_contract(const std::string& name);

/// Whether a built-in contract has this name.
[[nodiscard]] bool is_built_in(const std::string& contract);

}  // namespace goldenrule::arbiter
