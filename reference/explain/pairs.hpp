// SPDX-License-Identifier: Apache-2.0
//
// Which pairs of mistakes are tried where no single one explains a call: one of those that bring
// its outputs nearest, and any other, in both orders. A mistake that alone makes wrong an output in
// which nothing fails is in none: the other one would have to undo exactly that.
#pragma once

#include <span>
#include <vector>

#include "reference/explain/search.hpp"

namespace goldenrule::explain {

/// Mistakes of which pairs are made.
inline constexpr std::size_t kPaired = 6;

/// `promising`: the best first. `mistakes`: all that may be the other one. No more than `most`.
[[nodiscard]] std::vector<Hypothesis> pairs_of(std::span<const Candidate> promising,
                                               std::span<const calls::Mistake* const> mistakes,
                                               std::size_t most);

}  // namespace goldenrule::explain
