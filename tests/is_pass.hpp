// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/verdict/verdict.hpp"

namespace goldenrule::test {

inline bool is_pass(verdict::Verdict v) {
  return v == verdict::Verdict::kExact || v == verdict::Verdict::kWithinBudget;
}

}  // namespace goldenrule::test
