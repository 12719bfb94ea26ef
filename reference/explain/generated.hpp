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

}  // namespace goldenrule::explain
