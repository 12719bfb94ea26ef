// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/stage_places.hpp"

#include <algorithm>

#include "fixtures/call/plan.hpp"

namespace goldenrule::verdict {

StagePlaces::StagePlaces(const call::Record& record, std::int64_t chunk) : chunk_(chunk) {
  const call::Plan plan = call::make_plan(record, false);
  std::int64_t chunks = 0;
  std::int64_t number = 0;
  for (const call::Sequence& s : plan.sequences) {
    const std::int64_t count = (s.token_count + chunk - 1) / chunk;
    if (count > 0) sequences_.push_back({number, s.first_token, chunks, count});
    chunks += count;
    ++number;
  }
}

StagePlaces::Place StagePlaces::of(std::string_view axis, std::int64_t index) const {
  const bool is_token = axis == "token";
  const auto begins = [&](const Begin& b) { return is_token ? b.token : b.chunk; };
  const auto after = std::ranges::upper_bound(sequences_, index, {}, begins);
  const Begin& b = *(after - 1);
  const std::int64_t token = is_token ? index - b.token : -1;
  const std::int64_t chunk = is_token ? token / chunk_ : index - b.chunk;
  return {.sequence = b.number, .chunk = chunk, .behind = b.count - 1 - chunk, .token = token};
}

Coordinates StagePlaces::named(const std::vector<std::string_view>& axes,
                               const call::Shape& index) const {
  Coordinates names;
  const Place place = of(axes[0], index[0]);
  names.emplace_back("sequence", place.sequence);
  names.emplace_back("chunk", place.chunk);
  if (place.token >= 0) names.emplace_back("token", place.token);
  for (std::size_t i = 1; i < axes.size(); ++i) names.emplace_back(axes[i], index[i]);
  // Key before value, whatever the layout of the state.
  std::ranges::stable_sort(names, {}, [](const auto& n) { return n.first == "value"; });
  return names;
}

}  // namespace goldenrule::verdict
