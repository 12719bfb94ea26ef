// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::test {

using cases::record_of;

inline bool is_pass(verdict::Verdict v) {
  return v == verdict::Verdict::kExact || v == verdict::Verdict::kWithinBudget;
}

}  // namespace goldenrule::test
