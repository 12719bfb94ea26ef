// SPDX-License-Identifier: Apache-2.0
//
// The kill matrix: can a suite see a mistake? Every mistake is committed on the cases where it can
// be made, around the exact kernel (so that no rounding noise helps to find it), stored as a kernel
// would store it and judged as `check` judges. A cell is the number of elements out of budget.
//
// A mistake must be seen under every contract that its cases are judged by: a suite that sees it
// in fp32 decode and not in a bf16 prefill has a hole. Beside it the unmutated kernels, the exact
// one and the emulated one of the contract, must pass every case that is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/contract/contract.hpp"

namespace goldenrule::suites {

struct MatrixOptions {
  std::vector<std::string> suites;             ///< names, or case lines
  std::optional<contract::Contract> contract;  ///< absent: what each case implies
  std::vector<std::string> mutants;            ///< empty: all
  int kills = 3;     ///< cases of a suite that must see a mistake before it is left alone
  bool all = false;  ///< every mistake on every case where it applies
  /// Every parts-th case from the part-th on, 1 <= part <= parts.
  std::size_t part = 1, parts = 1;
  /// Called before each case: its number from 0, how many there are, its line.
  std::function<void(std::size_t, std::size_t, const std::string&)> begin_case{};
};

/// One mistake under one contract on one suite.
struct MatrixCell {
  int applies = 0;                 ///< cases where it was committed
  int kills = 0;                   ///< ... and seen
  std::int64_t most_elements = 0;  ///< out of budget in one case
  std::string most_case;           ///< its line
};

/// One mistake under one contract.
struct MatrixRow {
  std::size_t number = 0;  ///< of the mistake in the table: some share a name
  std::string mutant, contract;
  std::vector<MatrixCell> cells;       ///< in the order of the suites
  std::vector<std::string> survivors;  ///< lines of cases that do not see it, in visiting order
  /// What the mistake alone takes of the budget, over the cases that do not see it.
  double largest_ratio = 0.0;
  std::string permitted_by;  ///< why the contract permits it; empty: it does not

  [[nodiscard]] int applies() const;
  [[nodiscard]] int kills() const;
  [[nodiscard]] bool survives() const { return kills() == 0 && permitted_by.empty(); }
};

/// An unmutated kernel that left its budget.
struct FalseAlarm {
  std::string kernel, contract, case_line, tensor;
  std::int64_t out_of_budget = 0;
  double max_ratio = 0.0;
};

struct Matrix {
  std::vector<MatrixRow> rows;  ///< in the order of the table; only where a mistake applies
  std::vector<FalseAlarm> false_alarms;
  std::vector<std::string> unreached;  ///< mistakes that apply to no case at all
  int cases = 0;                       ///< looked at
  std::int64_t honest_elements = 0;    ///< of unmutated kernels, judged
};

[[nodiscard]] Matrix kill_matrix(const MatrixOptions& options);

/// Adds another share of the same matrix. A share stops at `kills` of its own, so that the whole of
/// many has more of them; with `all` it is the matrix of one run.
void join(Matrix& to, const Matrix& from);

}  // namespace goldenrule::suites
