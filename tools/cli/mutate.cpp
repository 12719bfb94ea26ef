// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "fixtures/call/text.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/report/runs.hpp"
#include "reference/suites/kill_matrix.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/matrix.hpp"
#include "tools/cli/merge_shares.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

using suites::FalseAlarm;
using suites::Matrix;
using suites::MatrixCell;
using suites::MatrixOptions;
using suites::MatrixRow;

constexpr std::size_t kShownSurvivors = 3;

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

void print_matrix(const Matrix& matrix, const std::vector<std::string>& suites) {
  fmt::print("elements out of budget in one case (cases that see it / tried)\n{:<28} {:<20}",
             "mistake", "contract");
  for (const std::string& suite : suites) fmt::print(" {:>20}", column_of(suite));
  fmt::print("\n");
  for (const MatrixRow& row : matrix.rows) print_row(row);
  for (const std::string& name : matrix.unreached) {
    fmt::print("{:<28} applies to no case\n", name);
  }
  for (const FalseAlarm& alarm : matrix.false_alarms) {
    fmt::print(
        "FALSE ALARM: the {} kernel under {}: {}, worst {:.3g} times the budget in "
        "{}: {}\n",
        alarm.kernel, alarm.contract, call::numbered(alarm.out_of_budget, "element"),
        alarm.max_ratio, alarm.tensor, alarm.case_line);
  }
}

std::vector<std::string> settings_of(const MutateOptions& given) {
  const MatrixOptions& o = given.matrix;
  std::vector<std::string> settings{given.contract, std::to_string(o.kills),
                                    o.all ? "all" : "until seen"};
  settings.insert(settings.end(), o.mutants.begin(), o.mutants.end());
  return settings;
}

}  // namespace

int mutate(const MutateOptions& given) {
  refuse_overwriting({given.contract}, {.json = given.json, .junit = {}, .html = {}});
  MatrixOptions options = given.matrix;
  if (!given.contract.empty()) options.contract = arbiter::named_contract(given.contract);
  const Share share = parse_share(given.shard);
  options.part = share.part;
  options.parts = share.parts;
  std::optional<Progress> progress;
  options.begin_case = [&](std::size_t i, std::size_t count, const std::string& line) {
    if (!progress) progress.emplace(count);
    progress->show(i, line);
  };
  const GivenMatrix given_matrix{.matrix = suites::kill_matrix(options),
                                 .suites = options.suites,
                                 .contract = given.contract,
                                 .all = options.all,
                                 .kills = options.kills};
  progress.reset();
  const report::Run run = run_of(kMutate, options.suites, settings_of(given), share);
  if (!given.json.empty()) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array({report::run_json(run)});
    write_text(given.json, matrix_json(given_matrix, std::move(runs)));
  }
  return show_matrix(given_matrix, share.is_whole());
}

int show_matrix(const GivenMatrix& given, bool whole) {
  const Matrix& matrix = given.matrix;
  print_matrix(matrix, given.suites);
  const auto survivors = std::ranges::count_if(matrix.rows, &MatrixRow::survives);
  const auto permitted = std::ranges::count_if(
      matrix.rows, [](const MatrixRow& r) { return r.kills() == 0 && !r.permitted_by.empty(); });
  fmt::print(
      "\n{} under their contracts: {} seen, {} permitted by the contract, {} {}; {} {} to no "
      "case. {}, {} of unmutated kernels, {}\n",
      call::numbered(matrix.rows.size(), "mistake"),
      std::ssize(matrix.rows) - survivors - permitted, permitted, survivors,
      call::agreeing(survivors, "SURVIVES", "SURVIVE"), matrix.unreached.size(),
      call::agreeing(matrix.unreached.size(), "applies", "apply"),
      call::numbered(matrix.cases, "case"), call::numbered(matrix.honest_elements, "element"),
      call::numbered(matrix.false_alarms.size(), "false alarm"));
  if (!matrix.false_alarms.empty()) return 1;
  // What a share does not see another may: only the whole can say that nobody does.
  if (!whole) return 0;
  if (matrix.rows.empty()) return 2;  // nothing was tried: nobody knows what the suites see
  // A contract for one mode leaves the mistakes of the others aside; otherwise a mistake that can
  // be made nowhere is one that the suites cannot see.
  const bool unseen = given.contract.empty() && !matrix.unreached.empty();
  return survivors > 0 || unseen ? 1 : 0;
}

}  // namespace goldenrule::tools
