// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --peers`: which mistakes the rules of other projects let pass, as markdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reference/suites/peer_table.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

// Rows of one name are ways to make one mistake: the name is said once.
std::string listed(std::vector<std::string_view> names) {
  std::set<std::string_view> said;
  std::erase_if(names, [&](std::string_view name) { return !said.insert(name).second; });
  return names.empty() ? "none" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

}  // namespace

int mutate_peers() {
  const std::vector<suites::Peer> all = suites::peers();
  Progress progress(all.size());
  const std::vector<suites::MissedMistakes> results = suites::missed_by_peers(
      all, [&](std::size_t i, const suites::Peer& peer) { progress.show(i, peer.name); });
  progress.clear();
  fmt::print(
      "| Test | Passes if | Inputs | Mistakes possible | Without effect | Missed | Missed by a "
      "budget |\n"
      "|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("| {} | {} | {} | {} | {} | {} | {} |\n", all[i].name, all[i].rule, all[i].inputs,
               results[i].possible.size(), results[i].inert, results[i].by_peer.size(),
               results[i].here.size());
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("\n**{}** misses {}. A budget on the same inputs misses {}.", all[i].name,
               listed(results[i].by_peer), listed(results[i].here));
    if (!results[i].refuses.empty()) {
      fmt::print(" It refuses the emulated right kernel of `{}`.", results[i].refuses);
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace goldenrule::tools
