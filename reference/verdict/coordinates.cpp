// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/coordinates.hpp"

#include <algorithm>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/text.hpp"

namespace goldenrule::verdict {
namespace {

constexpr const char* kAfter = "after";  // so many tokens

// The last sequence that begins at or before the packed token and is not empty there.
std::pair<std::int64_t, std::int64_t> locate_packed(const call::Record& record,
                                                    std::int64_t token) {
  const std::vector<std::int64_t> bounds =
      record.inputs.at(call::bounds_name(record.op)).to_integers();
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), token);
  const auto sequence = after - bounds.begin() - 1;
  return {sequence, token - bounds[static_cast<std::size_t>(sequence)]};
}

// The sequence of a checkpoint, and the tokens after which it is taken.
std::pair<std::int64_t, std::int64_t> locate_checkpoint(const call::Record& record,
                                                        std::int64_t row) {
  const std::vector<std::int64_t> bounds = record.inputs.at("cu_checkpoints").to_integers();
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), row);
  return {after - bounds.begin() - 1,
          static_cast<std::int64_t>(record.inputs.at("checkpoint_offsets")[row])};
}

}  // namespace

Coordinates coordinates(const call::Record& record, const std::string& name,
                        const call::Shape& index) {
  const call::TensorRow& row = *call::find_row(record, call::Group::kOutput, name);
  const std::vector<call::Axis> axes = call::axes_of(record, row);
  Coordinates names;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == call::axis::kPackedToken) {
      const auto [sequence, token] = locate_packed(record, index[i]);
      names.emplace_back("sequence", sequence);
      names.emplace_back("token", token);
      continue;
    }
    names.emplace_back(axes[i].word, index[i]);
    if (axes[i] == call::axis::kCheckpoint) {
      const auto [sequence, after] = locate_checkpoint(record, index[i]);
      names.emplace_back("sequence", sequence);
      names.emplace_back(kAfter, after);
    }
  }
  // Key before value, whatever the layout of the state.
  std::ranges::stable_sort(names, {}, [](const auto& n) { return n.first == "value"; });
  return names;
}

bool has_plane(std::span<const call::Axis> axes) {
  if (axes.size() < 2) return false;
  const call::Axis& last = axes.back();
  const call::Axis& before = axes[axes.size() - 2];
  if (last == call::axis::kKey) return before == call::axis::kValue;
  return last == call::axis::kValue &&
         (before == call::axis::kValueHead || before == call::axis::kKey);
}

std::string to_string(const Coordinates& coordinates) {
  std::string text;
  for (const auto& [name, value] : coordinates) {
    text += (text.empty() ? "" : ", ") + name + " ";
    text += name == kAfter ? call::numbered(value, "token") : std::to_string(value);
  }
  return text;
}

}  // namespace goldenrule::verdict
