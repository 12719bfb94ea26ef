// SPDX-License-Identifier: Apache-2.0
//
// A fixture from a case: inputs from the case line, golden values from the oracle, budgets from
// contracts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/cases/case.hpp"
#include "fixtures/schema/fixture.hpp"
#include "reference/contract/contract.hpp"
#include "reference/scalar/precision.hpp"

namespace goldenrule::suites {

/// "goldenrule 0.1.0"
[[nodiscard]] std::string generator_name();

/// The widest tier that is affordable: multi up to kMultiSteps state elements visited, quad beyond.
/// At 0.2 us an element a case takes a few seconds of one core; the file says which tier it was.
inline constexpr std::int64_t kMultiSteps = std::int64_t{16} << 20;
[[nodiscard]] scalar::Precision golden_precision(const cases::Case& c);

/// What a fixture holds beside inputs and golden values.
struct Extras {
  std::int64_t stages = 0;                    ///< chunk size of the stages; 0: none
  std::vector<contract::Contract> contracts;  ///< whose budgets are added
};

/// Elements that nothing writes (intermediate rows of padded requests) are NaN.
[[nodiscard]] schema::Fixture make_fixture(const cases::Case& c, scalar::Precision precision,
                                           const Extras& extras);

/// The chunk size of the stages in a fixture, the last extent of T; 0: it has none.
[[nodiscard]] std::int64_t stored_stages(const schema::Fixture& fixture);

/// The tier that gave the golden values of a fixture, as it says; nothing for other precision_bits.
[[nodiscard]] std::optional<scalar::Precision> stored_precision(const schema::Fixture& fixture);

/// Golden values and precision for `fixture`, from its inputs.
void compute_golden(schema::Fixture& fixture, scalar::Precision precision);

/// The budgets of contracts, by their names, for every output of `fixture` that has golden values
/// and for which the contract gives one: what verdict::Budget grants a kernel that stores o in the
/// type of v and states in the contract's type, or that of initial_state, or f32. In f32, rounded
/// up, so that no element that `diff` passes is refused: at most 2^-23 of itself above the exact
/// budget. NaN where the golden value is not finite (then the output must not be finite either) or
/// not defined.
[[nodiscard]] std::map<std::string, call::TensorMap> compute_budgets(
    const schema::Fixture& fixture, const std::vector<contract::Contract>& contracts);

}  // namespace goldenrule::suites
