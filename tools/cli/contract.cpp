// SPDX-License-Identifier: Apache-2.0
//
// A contract as JSON, so that one's own begins with the nearest that is built in.
#include <fmt/format.h>

#include "reference/arbiter/choices.hpp"
#include "reference/contract/contract_json.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/judging.hpp"

namespace goldenrule::tools {

int contract(const std::string& name) {
  if (name.empty()) {
    for (const contract::Contract& c : contract::contracts()) {
      fmt::print("{:<32} {}\n", c.name, c.meaning);
    }
    return 0;
  }
  fmt::print("{}", contract::to_json(arbiter::named_contract(name)));
  return 0;
}

}  // namespace goldenrule::tools
