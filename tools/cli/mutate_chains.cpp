// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --chains`: which mistakes of servers the judge of chains sees and names, as
// markdown.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "reference/suites/chain_matrix.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

void print_row(const suites::ChainRow& row) {
  const bool has_name = row.mistake->named != chain::Mistake::kNone;
  fmt::print("| `{}` | {} | {} | {} | {} | {} | {} |\n", row.mistake->name, row.mistake->meaning,
             row.made, row.seen, has_name ? std::to_string(row.named) : "-",
             has_name ? fmt::format("`{}`", call::name_of(row.mistake->named)) : "seen, no name",
             row.alone);
}

}  // namespace

int mutate_chains(const std::vector<std::string>& suites,
                  const std::vector<std::string>& mistakes) {
  suites::ChainMatrixOptions options{.scenarios = {}, .mistakes = mistakes};
  for (const std::string& name : suites) {
    for (cases::Scenario& scenario : scenarios_of(name)) {
      admit_scenario(cases::canonical(scenario), suites::memory_needed(scenario));
      options.scenarios.push_back(std::move(scenario));
    }
  }
  std::optional<Progress> progress;
  options.begin_chain = [&](std::size_t i, std::size_t count, const std::string& line) {
    if (!progress) progress.emplace(count);
    progress->show(i, line);
  };
  const suites::ChainMatrix matrix = suites::chain_matrix(options);
  progress.reset();
  fmt::print(
      "| Mistake | The server | Chains | Seen | Named | First said | Calls refused alone |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const suites::ChainRow& row : matrix.rows) print_row(row);
  for (const suites::ChainRow& row : matrix.rows) {
    for (const std::string& line : row.unseen) {
      fmt::print("\n`{}` is not seen in `{}`\n", row.mistake->name, line);
    }
    for (const std::string& line : row.unnamed) {
      fmt::print("\n`{}` has another name in {}\n", row.mistake->name, line);
    }
  }
  for (const suites::ChainAlarm& alarm : matrix.false_alarms) {
    fmt::print("\nFALSE ALARM: an honest server at call {}: {}: {}\n", alarm.finding.call,
               alarm.finding.text, alarm.line);
  }
  fmt::print("\n{} honest chains of {} calls in all, {} false alarms\n", matrix.chains,
             matrix.calls, matrix.false_alarms.size());
  return matrix.holds() ? 0 : 1;
}

}  // namespace goldenrule::tools
