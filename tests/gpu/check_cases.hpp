// SPDX-License-Identifier: Apache-2.0
//
// Lists of cases through the kernels, in guarded memory, each element judged; what the kernels
// refuse is counted and printed with the reason.
#pragma once

#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {

inline void check_cases(const std::string& name, const std::vector<LiveCase>& list) {
  REQUIRE_GPU();
  Tallies tallies;
  int failures = 0;
  for (const LiveCase& c : list) {
    const std::string complaint = run_case(c, tallies);
    if (!complaint.empty() && ++failures <= 10) MESSAGE(canonical(c) << ": " << complaint);
  }
  print(name, tallies);
  CHECK(failures == 0);
  CHECK(!tallies.empty());
}

/// A list of case_lists.hpp.
inline void check_list(const char* name) { check_cases(name, parse_list(case_list(name).lines)); }

/// Whether the kernels refuse the case for the type of its states.
inline bool has_f16_state(const call::Record& record) {
  const call::Tensor* start = record.find_input("initial_state");
  return start != nullptr && start->dtype() == call::DType::kF16;
}

/// Whether no argument of the kernels can say the call: rows that are new though their slot is not.
inline bool has_new_rows(const call::Record& record) {
  return record.find_input("has_initial_state") != nullptr;
}

/// The cases of a suite for which wanted(mode) holds: in place, as a server runs the kernels, and
/// into another pool, bit for bit the same.
template <class F>
void check_suite(const std::string& name, F&& wanted) {
  REQUIRE_GPU();
  std::vector<LiveCase> taken;
  int refused = 0;
  for (const cases::Case& call : cases::load_suite(name).cases) {
    if (!wanted(call.mode)) continue;
    const LiveCase c{.call = call, .change = "", .placement = {}};
    const call::Record record = make_record(c);
    if (has_f16_state(record)) {
      CHECK_THROWS_WITH_AS(
          static_cast<void>(outputs_of(record)),
          doctest::Contains("unsupported: state.dtype: expected f32 or bf16, actual f16"), Error);
      ++refused;
      continue;
    }
    if (has_new_rows(record)) {
      CHECK_THROWS_WITH_AS(static_cast<void>(outputs_of(record)),
                           doctest::Contains("/inputs/has_initial_state"), Error);
      ++refused;
      continue;
    }
    CHECK_MESSAGE(difference(outputs_of(record), outputs_of(record, {.separate = 1})) == "",
                  record.case_line);
    taken.push_back(c);
  }
  check_cases(name, taken);
  std::printf("  %d cases refused: f16 states, new rows\n", refused);
}

}  // namespace goldenrule::test
