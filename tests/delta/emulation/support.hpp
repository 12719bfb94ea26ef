// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "fixtures/cases/case.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::test {

inline call::Record record_of(const std::string& line) {
  return cases::make_record(cases::parse(line));
}

inline bool is_pass(verdict::Verdict v) {
  return v == verdict::Verdict::kExact || v == verdict::Verdict::kWithinBudget;
}

}  // namespace goldenrule::test
