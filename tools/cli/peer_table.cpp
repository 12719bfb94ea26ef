// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/peer_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fixtures/call/text.hpp"
#include "tools/cli/merge_shares.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;

std::size_t number_of_peer(const ordered_json& peer) {
  return peer.at("number").get<std::size_t>();
}

// Rows of one name are ways to make one mistake: the name is said once.
std::string listed(const ordered_json& names) {
  std::vector<std::string> said;
  std::set<std::string> known;
  for (const ordered_json& name : names) {
    std::string text = call::printable(name.get<std::string>());
    if (known.insert(text).second) said.push_back(std::move(text));
  }
  return said.empty() ? "none" : fmt::format("`{}`", fmt::join(said, "`, `"));
}

}  // namespace

ordered_json peer_json(const peers::Peer& peer, std::size_t number,
                       const peers::MissedMistakes& missed) {
  return {{"number", number},
          {"name", peer.name},
          {"rule", peer.rule},
          {"inputs", peer.inputs},
          {"possible", missed.possible},
          {"inert", missed.inert},
          {"missed", missed.by_peer},
          {"missed_by_budget", missed.here},
          {"refuses", missed.refuses}};
}

void join_peer_tables(ordered_json& to, const ordered_json& from) {
  std::vector<ordered_json> peers = to.at("peers");
  for (const ordered_json& peer : from.at("peers")) peers.push_back(peer);
  std::ranges::stable_sort(peers, {}, number_of_peer);
  to.at("peers") = peers;
}

int show_peer_table(const ordered_json& table, bool /*whole*/) {
  std::string text;
  const ordered_json& peers = table.at("peers");
  text += fmt::format(
      "| Test | Passes if | Inputs | Mistakes possible | Without effect | Missed | Missed by a "
      "budget |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const ordered_json& peer : peers) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", text_of(peer, "name"),
                        text_of(peer, "rule"), text_of(peer, "inputs"), peer.at("possible").size(),
                        peer.at("inert").get<std::int64_t>(), peer.at("missed").size(),
                        peer.at("missed_by_budget").size());
  }
  for (const ordered_json& peer : peers) {
    text += fmt::format("\n**{}** misses {}. A budget on the same inputs misses {}.",
                        text_of(peer, "name"), listed(peer.at("missed")),
                        listed(peer.at("missed_by_budget")));
    const std::string refuses = text_of(peer, "refuses");
    if (!refuses.empty())
      text += fmt::format(" It refuses the emulated right kernel of `{}`.", refuses);
    text += "\n";
  }
  fmt::print("{}", text);
  return 0;
}

}  // namespace goldenrule::tools
