// SPDX-License-Identifier: Apache-2.0
//
// What a contract of one's own is refused with; tests of both families ask.
#pragma once

#include <string>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract_json.hpp"

namespace goldenrule::test {

/// The message of the error that parsing `json` throws; empty if it throws none.
inline std::string refusal(const std::string& json) {
  try {
    (void)contract::parse_contract(json, "c.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace goldenrule::test
