// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/matrix.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "fixtures/call/error.hpp"
#include "reference/report/runs.hpp"
#include "tools/cli/merge_shares.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;
using suites::FalseAlarm;
using suites::MatrixCell;
using suites::MatrixRow;

ordered_json number(double x) {
  return std::isfinite(x) ? ordered_json(x) : ordered_json(x > 0 ? "inf" : "nan");
}

ordered_json json_of(const GivenMatrix& given) {
  const suites::Matrix& matrix = given.matrix;
  ordered_json rows = ordered_json::array();
  for (const MatrixRow& row : matrix.rows) {
    ordered_json cells = ordered_json::array();
    for (std::size_t s = 0; s < row.cells.size(); ++s) {
      const MatrixCell& cell = row.cells[s];
      cells.push_back({{"suite", given.suites[s]},
                       {"applies", cell.applies},
                       {"kills", cell.kills},
                       {"most_elements", cell.most_elements},
                       {"most_case", cell.most_case}});
    }
    rows.push_back({{"number", row.number},
                    {"mutant", row.mutant},
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
  return ordered_json{{"suites", given.suites}, {"contract", given.contract},
                      {"all", given.all},       {"kills_wanted", given.kills},
                      {"cases", matrix.cases},  {"honest_elements", matrix.honest_elements},
                      {"rows", rows},           {"unreached", matrix.unreached},
                      {"false_alarms", alarms}};
}

double number_of(const ordered_json& json) {
  if (json.is_number()) return json.get<double>();
  return json == "inf" ? std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::quiet_NaN();
}

MatrixRow row_of(const ordered_json& json, std::size_t suites) {
  MatrixRow row{.number = json.at("number").get<std::size_t>(),
                .mutant = json.at("mutant").get<std::string>(),
                .contract = json.at("contract").get<std::string>(),
                .cells = {},
                .survivors = json.at("survivors").get<std::vector<std::string>>(),
                .largest_ratio = number_of(json.at("largest_ratio_of_survivors")),
                .permitted_by = json.at("permitted_by").get<std::string>()};
  for (const ordered_json& cell : json.at("cells")) {
    row.cells.push_back({.applies = cell.at("applies").get<int>(),
                         .kills = cell.at("kills").get<int>(),
                         .most_elements = cell.at("most_elements").get<std::int64_t>(),
                         .most_case = cell.at("most_case").get<std::string>()});
  }
  if (row.cells.size() != suites) {
    throw Error(ErrorKind::kSchema, "rows/cells", "one for each suite", "another number");
  }
  return row;
}

GivenMatrix matrix_of(const ordered_json& json) {
  GivenMatrix given{.matrix = {},
                    .suites = json.at("suites").get<std::vector<std::string>>(),
                    .contract = json.at("contract").get<std::string>(),
                    .all = json.at("all").get<bool>(),
                    .kills = json.at("kills_wanted").get<int>()};
  suites::Matrix& matrix = given.matrix;
  for (const ordered_json& row : json.at("rows")) {
    matrix.rows.push_back(row_of(row, given.suites.size()));
  }
  for (const ordered_json& a : json.at("false_alarms")) {
    matrix.false_alarms.push_back({.kernel = a.at("kernel").get<std::string>(),
                                   .contract = a.at("contract").get<std::string>(),
                                   .case_line = a.at("case").get<std::string>(),
                                   .tensor = a.at("tensor").get<std::string>(),
                                   .out_of_budget = a.at("out_of_budget").get<std::int64_t>(),
                                   .max_ratio = number_of(a.at("max_ratio"))});
  }
  matrix.unreached = json.at("unreached").get<std::vector<std::string>>();
  matrix.cases = json.at("cases").get<int>();
  matrix.honest_elements = json.at("honest_elements").get<std::int64_t>();
  return given;
}

}  // namespace

std::string state_of(const MatrixRow& row) {
  if (row.survives()) return "SURVIVOR";
  if (row.kills() > 0) return "killed";
  return "PERMITTED";
}

std::string matrix_json(const GivenMatrix& given, ordered_json runs) {
  ordered_json json{{"runs", std::move(runs)}};
  json.update(json_of(given));
  return json.dump(1) + "\n";
}

MergedMatrix merge_matrices(const std::vector<report::ReportText>& reports) {
  std::optional<GivenMatrix> merged;
  ordered_json runs = merge_shares(reports, kMutate, [&](const ordered_json& report) {
    GivenMatrix given = matrix_of(report);
    if (merged) {
      suites::join(merged->matrix, given.matrix);
    } else {
      merged = std::move(given);
    }
  });
  std::vector<std::string> problems = report::missing_shares(runs);
  std::string json = matrix_json(*merged, std::move(runs));
  return {.given = std::move(*merged), .json = std::move(json), .problems = std::move(problems)};
}

}  // namespace goldenrule::tools
