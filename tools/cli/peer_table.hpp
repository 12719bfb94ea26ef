// SPDX-License-Identifier: Apache-2.0
//
// What the rules of other projects miss as JSON, which is what `mutate --peers` prints and `merge`
// puts together.
#pragma once

#include <nlohmann/json.hpp>

#include "reference/delta/peers/peer_table.hpp"

namespace goldenrule::tools {

/// One peer; `number` is its place among all of them.
[[nodiscard]] nlohmann::ordered_json peer_json(const peers::Peer& peer, std::size_t number,
                                               const peers::MissedMistakes& missed);

/// Adds the peers of another share of the same run; all stand in the order of the table.
void join_peer_tables(nlohmann::ordered_json& to, const nlohmann::ordered_json& from);

/// Prints the peers as markdown; nothing in them is wrong (0). Throws nlohmann::json::exception for
/// another JSON.
int show_peer_table(const nlohmann::ordered_json& table, bool whole);

}  // namespace goldenrule::tools
