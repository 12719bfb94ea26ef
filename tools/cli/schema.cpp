// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "reference/arbiter/tables.hpp"
#include "tools/cli/commands.hpp"

namespace goldenrule::tools {

int schema(bool json) {
  const nlohmann::ordered_json tables = arbiter::schema_json();
  if (json) {
    fmt::print("{}\n", tables.dump(2));
    return 0;
  }
  const auto text = [](const nlohmann::ordered_json& row, const char* key) {
    return row.at(key).get<std::string>();
  };
  for (const auto& operation : tables.at("operations")) {
    fmt::print("{}: {}\n", text(operation, "name"), text(operation, "meaning"));
    for (const auto& row : operation.at("tensors")) {
      fmt::print("  {:<8} {:<22} {:<8} {:<32} {}\n",
                 text(row, "group") == "inputs" ? "input" : "output", text(row, "name"),
                 text(row, "storage"), text(row, "extents"), text(row, "present"));
    }
  }
  fmt::print("conventions\n");
  for (const auto& c : tables.at("conventions")) {
    std::string values = c.contains("values") ? "" : text(c, "type");
    for (const auto& v : c.value("values", nlohmann::ordered_json::array())) {
      if (!values.empty()) values += ", ";
      values += v.get<std::string>();
    }
    fmt::print("  {:<22} {} (default {})\n", text(c, "name"), values,
               c.contains("default") ? c["default"].dump() : "K^-0.5");
  }
  return 0;
}

}  // namespace goldenrule::tools
