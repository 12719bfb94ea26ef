// SPDX-License-Identifier: Apache-2.0
//
// The tables of the library as JSON, for programs: what `schema --json` and `list --json` print and
// what the Python package answers with.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace goldenrule::arbiter {

/// Operations with their tensors, conventions with their values and defaults, contracts.
[[nodiscard]] nlohmann::ordered_json schema_json();

/// suites, patterns, contracts, mistakes, or the case lines of a suite. Throws Error(kArgument) for
/// any other name.
[[nodiscard]] nlohmann::ordered_json table_json(const std::string& what);

}  // namespace goldenrule::arbiter
