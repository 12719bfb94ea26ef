// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/cli/commands.hpp"
#include "tools/cli/kill_matrix.hpp"
#include "tools/cli/report.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownSurvivors = 3;

std::string state_of(const MatrixRow& row) {
  if (row.survives()) return "SURVIVOR";
  if (row.kills > 0) return "killed";
  return "EQUIVALENT";
}

void print_row(const MatrixRow& row) {
  fmt::print("{:<28} {:<20} {:>7} {:>5} {:>11}  {}\n", row.mutant, row.contract, row.applies,
             row.kills, row.most_elements, state_of(row));
  if (row.kills == 0) {
    fmt::print("    it takes {:.3g} of the budget at most{}{}\n", row.largest_ratio,
               row.licence.empty() ? "" : "; the contract permits it: ", row.licence);
  }
  for (std::size_t i = 0; i < std::min(row.survivors.size(), kShownSurvivors); ++i) {
    fmt::print("    not seen by {}\n", row.survivors[i]);
  }
  if (row.survivors.size() > kShownSurvivors) {
    fmt::print("    and {} more\n", row.survivors.size() - kShownSurvivors);
  }
}

void print_matrix(const Matrix& matrix) {
  fmt::print("{:<28} {:<20} {:>7} {:>5} {:>11}\n", "mistake", "contract", "applies", "kills",
             "elements");
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
    rows.push_back({{"mutant", row.mutant},
                    {"contract", row.contract},
                    {"state", state_of(row)},
                    {"applies", row.applies},
                    {"kills", row.kills},
                    {"most_elements", row.most_elements},
                    {"most_case", row.most_case},
                    {"survivors", row.survivors},
                    {"largest_ratio_of_survivors", number(row.largest_ratio)},
                    {"licence", row.licence}});
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

int mutate(const MatrixOptions& options, const std::string& json) {
  const Matrix matrix = kill_matrix(options);
  print_matrix(matrix);
  if (!json.empty()) write_text(json, json_matrix(matrix, options));
  const auto survivors = std::ranges::count_if(matrix.rows, &MatrixRow::survives);
  const auto equivalent = std::ranges::count_if(
      matrix.rows, [](const MatrixRow& r) { return r.kills == 0 && !r.licence.empty(); });
  fmt::print(
      "\n{} mistakes under their contracts: {} seen, {} permitted by the contract, {} "
      "SURVIVE; {} apply to no case. {} cases, {} elements of unmutated kernels, {} false "
      "alarms\n",
      matrix.rows.size(), std::ssize(matrix.rows) - survivors - equivalent, equivalent, survivors,
      matrix.unreached.size(), matrix.cases, matrix.honest_elements, matrix.false_alarms.size());
  // A contract for one mode leaves the mistakes of the others aside; otherwise a mistake that can
  // be made nowhere is one that the suites cannot see.
  const bool unseen = options.contract.empty() && !matrix.unreached.empty();
  return survivors > 0 || unseen || !matrix.false_alarms.empty() ? 1 : 0;
}

}  // namespace goldenrule::tools
