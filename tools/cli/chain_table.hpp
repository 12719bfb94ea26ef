// SPDX-License-Identifier: Apache-2.0
//
// The kill table of chains as JSON, which is what `mutate --chains` prints and `merge` adds up.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/serving/chain_matrix.hpp"

namespace goldenrule::tools {

[[nodiscard]] nlohmann::ordered_json chain_table(const serving::ChainMatrix& matrix,
                                                 const std::vector<std::string>& suites,
                                                 const std::string& contract);

/// Adds the chains of another share of the same run.
void join_chain_tables(nlohmann::ordered_json& to, const nlohmann::ordered_json& from);

/// Prints the table as markdown and returns the exit code: 1 where a mistake is not seen, has
/// another name, or an honest server is refused; in the whole, also where a mistake is made
/// nowhere. Throws nlohmann::json::exception for another JSON.
[[nodiscard]] int show_chain_table(const nlohmann::ordered_json& table, bool whole);

}  // namespace goldenrule::tools
