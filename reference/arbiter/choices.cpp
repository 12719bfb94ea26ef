// SPDX-License-Identifier: Apache-2.0
#include "reference/arbiter/choices.hpp"

#include <algorithm>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract_json.hpp"

namespace goldenrule::arbiter {

std::optional<scalar::Precision> parse_precision(const std::string& name) {
  using scalar::Precision;
  if (name == "auto") return std::nullopt;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (scalar::name_of(p) == name) return p;
  }
  throw Error(ErrorKind::kArgument, "--precision", "auto, double, quad or multi", "'" + name + "'");
}

contract::Contract named_contract(const std::string& name) {
  const bool is_file = name.ends_with(".json") || name.find('/') != std::string::npos;
  return is_file ? contract::load_contract(name) : contract::find_contract(name);
}

bool is_built_in(const std::string& contract) {
  return std::ranges::find(contract::contracts(), contract, &contract::Contract::name) !=
         contract::contracts().end();
}

}  // namespace goldenrule::arbiter
