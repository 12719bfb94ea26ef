// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reference/suites/kill_matrix.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/report.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;
using suites::FalseAlarm;
using suites::Matrix;
using suites::MatrixCell;
using suites::MatrixOptions;
using suites::MatrixRow;

constexpr std::size_t kShownSurvivors = 3;

std::string state_of(const MatrixRow& row) {
  if (row.survives()) return "SURVIVOR";
  if (row.kills() > 0) return "killed";
  return "PERMITTED";
}

// A case line is too long for the head of a column.
std::string column_of(const std::string& suite) {
  return suite.find('=') == std::string::npos ? suite : "given";
}

// Elements out of budget in the case that has most of them, and how many cases see the mistake.
std::string text_of(const MatrixCell& cell) {
  if (cell.applies == 0) return "-";
  return fmt::format("{} ({}/{})", cell.most_elements, cell.kills, cell.applies);
}

void print_row(const MatrixRow& row) {
  fmt::print("{:<28} {:<20}", row.mutant, row.contract);
  for (const MatrixCell& cell : row.cells) fmt::print(" {:>20}", text_of(cell));
  fmt::print("  {}\n", state_of(row));
  if (row.kills() == 0) {
    fmt::print("    it takes {:.3g} of the budget at most{}{}\n", row.largest_ratio,
               row.permitted_by.empty() ? "" : "; the contract permits it: ", row.permitted_by);
  }
  if (row.kills() > 0) return;
  for (std::size_t i = 0; i < std::min(row.survivors.size(), kShownSurvivors); ++i) {
    fmt::print("    not seen by {}\n", row.survivors[i]);
  }
  if (row.survivors.size() > kShownSurvivors) {
    fmt::print("    and {} more\n", row.survivors.size() - kShownSurvivors);
  }
}

void print_matrix(const Matrix& matrix, const MatrixOptions& options) {
  fmt::print("elements out of budget in one case (cases that see it / tried)\n{:<28} {:<20}",
             "mistake", "contract");
  for (const std::string& suite : options.suites) fmt::print(" {:>20}", column_of(suite));
  fmt::print("\n");
  for (const MatrixRow& row : matrix.rows) print_row(row);
  for (const std::string& name : matrix.unreached) {
    fmt::print("{:<28} applies to no case\n", name);
  }
  for (const FalseAlarm& alarm : matrix.false_alarms) {
    fmt::print(
        "FALSE ALARM: the {} kernel under {}: {} elements, worst {:.3g} times the budget in "
        "{}: {}\n",
        alarm.kernel, alarm.contract, alarm.out_of_budget, alarm.max_ratio, alarm.tensor,
        alarm.case_line);
  }
}

ordered_json number(double x) {
  return std::isfinite(x) ? ordered_json(x) : ordered_json(x > 0 ? "inf" : "nan");
}

std::string json_matrix(const Matrix& matrix, const MatrixOptions& options) {
  ordered_json rows = ordered_json::array();
  for (const MatrixRow& row : matrix.rows) {
    ordered_json cells = ordered_json::array();
    for (std::size_t s = 0; s < row.cells.size(); ++s) {
      const MatrixCell& cell = row.cells[s];
      cells.push_back({{"suite", options.suites[s]},
                       {"applies", cell.applies},
                       {"kills", cell.kills},
                       {"most_elements", cell.most_elements},
                       {"most_case", cell.most_case}});
    }
    rows.push_back({{"mutant", row.mutant},
                    {"contract", row.contract},
                    {"state", state_of(row)},
                    {"applies", row.applies()},
                    {"kills", row.kills()},
                    {"cells", cells},
                    {"survivors", row.survivors},
                    {"largest_ratio_of_survivors", number(row.largest_ratio)},
                    {"permitted_by", row.permitted_by}});
  }
  ordered_json alarms = ordered_json::array();
  for (const FalseAlarm& a : matrix.false_alarms) {
    alarms.push_back({{"kernel", a.kernel},
                      {"contract", a.contract},
                      {"case", a.case_line},
                      {"tensor", a.tensor},
                      {"out_of_budget", a.out_of_budget},
                      {"max_ratio", number(a.max_ratio)}});
  }
  return ordered_json{{"suites", options.suites},
                      {"all", options.all},
                      {"kills_wanted", options.kills},
                      {"cases", matrix.cases},
                      {"honest_elements", matrix.honest_elements},
                      {"rows", rows},
                      {"unreached", matrix.unreached},
                      {"false_alarms", alarms}}
             .dump(1) +
         "\n";
}

}  // namespace

int mutate(const MutateOptions& given) {
  MatrixOptions options = given.matrix;
  if (!given.contract.empty()) options.contract = named_contract(given.contract);
  std::optional<Progress> progress;
  options.begin_case = [&](std::size_t i, std::size_t count, const std::string& line) {
    if (!progress) progress.emplace(count);
    progress->show(i, line);
  };
  const Matrix matrix = suites::kill_matrix(options);
  progress.reset();
  print_matrix(matrix, options);
  if (!given.json.empty()) write_text(given.json, json_matrix(matrix, options));
  const auto survivors = std::ranges::count_if(matrix.rows, &MatrixRow::survives);
  const auto permitted = std::ranges::count_if(
      matrix.rows, [](const MatrixRow& r) { return r.kills() == 0 && !r.permitted_by.empty(); });
  fmt::print(
      "\n{} mistakes under their contracts: {} seen, {} permitted by the contract, {} "
      "SURVIVE; {} apply to no case. {} cases, {} elements of unmutated kernels, {} false "
      "alarms\n",
      matrix.rows.size(), std::ssize(matrix.rows) - survivors - permitted, permitted, survivors,
      matrix.unreached.size(), matrix.cases, matrix.honest_elements, matrix.false_alarms.size());
  // A contract for one mode leaves the mistakes of the others aside; otherwise a mistake that can
  // be made nowhere is one that the suites cannot see.
  const bool unseen = !options.contract && !matrix.unreached.empty();
  return survivors > 0 || unseen || !matrix.false_alarms.empty() ? 1 : 0;
}

}  // namespace goldenrule::tools
