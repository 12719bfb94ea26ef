// SPDX-License-Identifier: Apache-2.0
//
// A kill matrix beside what it was asked for, as `mutate` makes it and `merge` puts it together
// from the JSON of its shares.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "reference/report/merge.hpp"
#include "reference/suites/kill_matrix.hpp"

namespace goldenrule::tools {

struct GivenMatrix {
  suites::Matrix matrix;
  std::vector<std::string> suites;
  std::string contract;  ///< empty: what each case implies
  bool all = false;
  int kills = 0;
};

/// "killed", "PERMITTED" or "SURVIVOR".
[[nodiscard]] std::string state_of(const suites::MatrixRow& row);

/// The JSON of `mutate`; `runs` says what it covers (reference/report/runs.hpp).
[[nodiscard]] std::string matrix_json(const GivenMatrix& given, nlohmann::ordered_json runs);

/// The matrix of all shares, its JSON, and what is missing. A share that is there twice counts
/// once.
struct MergedMatrix {
  GivenMatrix given;
  std::string json;
  std::vector<std::string> problems;
};
[[nodiscard]] MergedMatrix merge_matrices(const std::vector<report::ReportText>& reports);

/// Prints the matrix and returns the exit code; of a part of the whole, 1 for false alarms alone.
int show_matrix(const GivenMatrix& given, bool whole);

}  // namespace goldenrule::tools
