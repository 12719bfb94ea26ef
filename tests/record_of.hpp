// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "fixtures/cases/case.hpp"

namespace goldenrule::cases {

/// The call of a case line, with its inputs.
inline call::Record record_of(const std::string& line) { return make_record(parse(line)); }

}  // namespace goldenrule::cases
