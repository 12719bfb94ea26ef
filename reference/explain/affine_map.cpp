// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/affine_map.hpp"

#include <algorithm>
#include <map>

namespace goldenrule::explain {
namespace {

using Votes = std::map<std::int64_t, std::int64_t>;

std::optional<std::int64_t> majority(const Votes& votes) {
  if (votes.empty()) return std::nullopt;
  return std::ranges::max_element(votes, {}, &Votes::value_type::second)->first;
}

// Of neighbours along the axis among the pairs that agree in all other indices.
std::optional<std::int64_t> step_along(const std::vector<PlacePair>& pairs, std::size_t axis) {
  std::map<std::vector<std::int64_t>, std::map<std::int64_t, std::int64_t>> lines;
  for (const PlacePair& pair : pairs) {
    std::vector<std::int64_t> others = pair.to;
    others[axis] = 0;
    lines[others][pair.to[axis]] = pair.from;
  }
  Votes votes;
  for (const auto& [others, line] : lines) {
    for (auto it = line.begin(); it != line.end(); ++it) {
      const auto next = std::next(it);
      if (next == line.end()) break;
      const std::int64_t distance = next->first - it->first;
      const std::int64_t difference = next->second - it->second;
      if (difference % distance == 0) ++votes[difference / distance];
    }
  }
  return majority(votes);
}

}  // namespace

std::optional<AffineMap> fit_affine(const std::vector<PlacePair>& pairs,
                                    const std::vector<std::int64_t>& own) {
  if (pairs.empty()) return std::nullopt;
  AffineMap map{.offset = 0, .steps = own};
  for (std::size_t a = 0; a < own.size(); ++a) {
    if (const auto step = step_along(pairs, a)) map.steps[a] = *step;
  }
  Votes offsets;
  for (const PlacePair& pair : pairs) ++offsets[pair.from - map(pair.to)];
  map.offset = *majority(offsets);
  return map;
}

}  // namespace goldenrule::explain
