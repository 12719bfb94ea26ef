// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --chains`: which mistakes of servers the judge of chains sees and names, as
// markdown.
#include <omp.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reference/arbiter/choices.hpp"
#include "reference/chain/judge.hpp"
#include "reference/serving/chain_matrix.hpp"
#include "tools/cli/chain_table.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/merge_shares.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

// Of all suites, in one order: each machine takes its part of them.
std::vector<cases::Scenario> admitted_scenarios(const std::vector<std::string>& suites) {
  std::vector<cases::Scenario> scenarios;
  for (const std::string& name : suites) {
    for (cases::Scenario& scenario : scenarios_of(name)) {
      limits().admit_scenario(cases::canonical(scenario),
                              omp_get_max_threads() * serving::memory_to_judge(scenario));
      scenarios.push_back(std::move(scenario));
    }
  }
  return scenarios;
}

}  // namespace

int mutate_chains(const MutateOptions& given) {
  refuse_overwriting({given.contract}, {.json = given.json, .junit = {}, .html = {}});
  const std::vector<std::string>& suites = given.matrix.suites;
  const Share share = parse_share(given.shard);
  serving::ChainMatrixOptions options{.scenarios = {}, .mistakes = given.matrix.mutants};
  if (!given.contract.empty()) {
    options.contract = arbiter::named_contract(given.contract);
    chain::require_contract(*options.contract);
  }
  options.scenarios = take_share(admitted_scenarios(suites), share);
  std::optional<Progress> progress;
  options.begin_chain = [&](std::size_t i, std::size_t count, const std::string& line) {
    if (!progress) progress.emplace(count);
    progress->show(i, line);
  };
  const nlohmann::ordered_json table =
      chain_table(serving::chain_matrix(options), suites, given.contract);
  progress.reset();
  std::vector<std::string> settings{given.contract};
  settings.insert(settings.end(), options.mistakes.begin(), options.mistakes.end());
  if (!given.json.empty()) {
    write_covered(given.json, table, run_of(kMutateChains, suites, settings, share));
  }
  return show_chain_table(table, share.is_whole());
}

}  // namespace goldenrule::tools
