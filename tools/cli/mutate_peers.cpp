// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --peers`: which mistakes the rules of other projects let pass, as markdown.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/delta/peers/peer_table.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/merge_shares.hpp"
#include "tools/cli/peer_table.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {

int mutate_peers(const std::string& shard, const std::string& json) {
  const Share share = parse_share(shard);
  const std::vector<peers::Peer> all = peers::peers();
  const std::vector<peers::Peer> mine = take_share(all, share);
  Progress progress(mine.size());
  const std::vector<peers::MissedMistakes> results = peers::missed_by_peers(
      mine, [&](std::size_t i, const peers::Peer& peer) { progress.show(i, peer.name); });
  progress.clear();
  nlohmann::ordered_json peers = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    peers.push_back(peer_json(mine[i], share.part - 1 + i * share.parts, results[i]));
  }
  if (!json.empty()) {
    std::vector<std::string> names;
    for (const peers::Peer& peer : all) names.push_back(peer.name);
    write_items(json, "peers", peers, run_of(kMutatePeers, names, {}, share));
  }
  return show_peer_table({{"peers", peers}}, share.is_whole());
}

}  // namespace goldenrule::tools
