// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/coordinates.hpp"

#include <algorithm>

namespace goldenrule::verdict {
namespace {

// Appends the two state axes in the order of the layout.
void append_state(const call::Record& record, const call::Shape& index, Coordinates& names) {
  const std::size_t n = index.size();
  const bool vk = record.convention.state_layout == call::StateLayout::kVK;
  names.emplace_back("key", index[vk ? n - 1 : n - 2]);
  names.emplace_back("value", index[vk ? n - 2 : n - 1]);
}

// The last sequence that begins at or before the packed token and is not empty there.
std::pair<std::int64_t, std::int64_t> locate_packed(const call::Record& record,
                                                    std::int64_t token) {
  const std::vector<std::int64_t> bounds = record.inputs.at("cu_seqlens").to_integers();
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), token);
  const auto sequence = after - bounds.begin() - 1;
  return {sequence, token - bounds[static_cast<std::size_t>(sequence)]};
}

}  // namespace

Coordinates coordinates(const call::Record& record, const std::string& name,
                        const call::Shape& index) {
  const bool prefill = record.mode == call::Mode::kPrefill;
  Coordinates names;
  if (name == "o") {
    if (prefill) {
      const auto [sequence, token] = locate_packed(record, index[0]);
      names = {{"sequence", sequence}, {"token", token}, {"head", index[1]}, {"value", index[2]}};
    } else {
      names = {
          {"sequence", index[0]}, {"token", index[1]}, {"head", index[2]}, {"value", index[3]}};
    }
  } else if (name == "final_state") {
    names = {{prefill ? "sequence" : "slot", index[0]}, {"head", index[1]}};
    append_state(record, index, names);
  } else {
    names = {{"sequence", index[0]}, {"token", index[1]}, {"head", index[2]}};
    append_state(record, index, names);
  }
  return names;
}

std::string to_string(const Coordinates& coordinates) {
  std::string text;
  for (const auto& [name, value] : coordinates) {
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(value);
  }
  return text;
}

}  // namespace goldenrule::verdict
