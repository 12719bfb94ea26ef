// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that a generator enumerates (Slice::generated), screened on few lanes: they are many,
// and nearly all of them are refuted by the first numbers. Their number bounds the work, no clock.
#pragma once

#include <span>
#include <vector>

#include "reference/explain/search.hpp"

namespace goldenrule::explain {

/// Those of `mistakes` that account for the error of a part of `whole`, the best first.
[[nodiscard]] std::vector<Candidate> screen_generated(
    const Trial& whole, std::span<const Failures> failures,
    const std::vector<const calls::Mistake*>& mistakes);

/// Those of `confirmed` that explain the whole by more than chance (by_blocks.hpp), the first of
/// each kind (calls::Aspect) with what it shares with all others of its kind that do. Those of
/// `promising` that are not among `confirmed` explain as far as they were looked at.
[[nodiscard]] std::vector<Candidate> one_of_a_kind(std::vector<Candidate> confirmed,
                                                   const std::vector<Candidate>& promising,
                                                   const BlockSearch& blocks);

}  // namespace goldenrule::explain
