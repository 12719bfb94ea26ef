// SPDX-License-Identifier: Apache-2.0
//
// How much memory a verdict on a draft acceptance takes, from its shapes alone. Upper bounds: what
// evaluate.cpp, verdict/comparison.cpp and explain/ hold at once.
//
//   rule          on every thread, for one row, p, q and noise in f64, Z each
//   expectation   per element of the outputs golden f64, radius and undefined
//   explanation   the same for each of the predictions that are kept, and the changed calls: the
//                 probabilities twice in their own type, or a greedy call
#pragma once

#include "reference/verdict/memory.hpp"

namespace goldenrule::drafts {

/// `threads` that work side by side.
[[nodiscard]] verdict::Need memory_needed(const verdict::Declared& call, int threads);

}  // namespace goldenrule::drafts
