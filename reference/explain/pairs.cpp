// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/pairs.hpp"

#include <algorithm>

namespace goldenrule::explain {

std::vector<Hypothesis> pairs_of(std::span<const Candidate> promising,
                                 std::span<const calls::Mistake* const> mistakes,
                                 std::size_t most) {
  std::vector<Hypothesis> pairs;
  const auto add = [&](const calls::Mistake* a, const calls::Mistake* b) {
    if (a == b) return;
    for (const Hypothesis& pair : {Hypothesis{a, b}, Hypothesis{b, a}}) {
      if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
    }
  };
  const std::size_t leading = std::min(kPaired, promising.size());
  for (std::size_t i = 0; i < leading; ++i) {
    for (std::size_t j = i + 1; j < promising.size(); ++j) {
      add(promising[i].hypothesis.front(), promising[j].hypothesis.front());
    }
  }
  for (std::size_t i = 0; i < leading; ++i) {
    for (const calls::Mistake* m : mistakes) add(promising[i].hypothesis.front(), m);
  }
  if (pairs.size() > most) pairs.resize(most);
  return pairs;
}

}  // namespace goldenrule::explain
