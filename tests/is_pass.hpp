// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/verdict/verdict.hpp"

namespace goldenrule::test {

using verdict::is_pass;

}  // namespace goldenrule::test
