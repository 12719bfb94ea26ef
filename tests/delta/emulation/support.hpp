// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::test {

using cases::record_of;

}  // namespace goldenrule::test
