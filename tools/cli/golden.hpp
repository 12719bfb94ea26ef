// SPDX-License-Identifier: Apache-2.0
//
// A fixture from a case: inputs from the case line, golden values from the oracle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fixtures/cases/case.hpp"
#include "fixtures/schema/fixture.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::tools {

/// "goldenrule 0.1.0"
[[nodiscard]] std::string generator_name();

/// The widest tier that is affordable: multi up to kMultiSteps state elements visited, quad beyond.
/// At 0.2 us an element a case takes a few seconds of one core; the file says which tier it was.
inline constexpr std::int64_t kMultiSteps = std::int64_t{16} << 20;
[[nodiscard]] scalar::Precision golden_precision(const cases::Case& c);

/// Elements that nothing writes (intermediate rows of padded requests) are NaN. `stages` > 0 adds
/// the chunk stages with that chunk size.
[[nodiscard]] schema::Fixture make_fixture(const cases::Case& c, scalar::Precision precision,
                                           int stages);

/// Golden values and precision for `fixture`, from its inputs.
void compute_golden(schema::Fixture& fixture, scalar::Precision precision);

}  // namespace goldenrule::tools
