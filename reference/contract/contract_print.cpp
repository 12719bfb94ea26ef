// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "reference/contract/contract_json.hpp"

namespace goldenrule::contract {

std::string to_json(const Contract& c) {
  using nlohmann::ordered_json;
  ordered_json root{{"name", c.name}, {"meaning", c.meaning}, {"kind", name_of(c.kind)}};
  root["state"] = c.state_dtype ? ordered_json(call::info(*c.state_dtype).name) : nullptr;
  if (c.kind == Kind::kChunked) {
    root["chunk"] = c.chunk;
    root["form"] = name_of(c.form);
  }
  if (c.kind != Kind::kIdeal) {
    root["unit_roundoff"] = c.unit_roundoff;
    ordered_json round = ordered_json::object();
    for (std::size_t i = 0; i < kPoints; ++i) {
      if (c.rounding[i])
        round[std::string(name_of(static_cast<Point>(i)))] = info(*c.rounding[i]).name;
    }
    root["round"] = round;
    for_each_function(c.functions, [&](std::string_view name, double error) {
      root["functions"][std::string(name)] = error;
    });
  }
  return root.dump(1) + "\n";
}

}  // namespace goldenrule::contract
