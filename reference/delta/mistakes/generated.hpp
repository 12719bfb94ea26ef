// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that are enumerated, not listed: each is a point of a small space, and its name and
// meaning are made of the names of its coordinates. An explanation tries them where no mistake of
// the table explains a call.
#pragma once

#include <span>
#include <vector>

#include "reference/calls/mistake.hpp"

namespace goldenrule::delta {

/// All of them.
[[nodiscard]] std::span<const calls::Mistake> generated_mistakes();

/// Orders of the steps of a token and of the decays of a chunk (order.hpp).
[[nodiscard]] std::vector<calls::Mistake> order_mistakes();
/// What is not read or not written beyond the last full tile of an axis (tail.hpp).
[[nodiscard]] std::vector<calls::Mistake> tail_mistakes();

}  // namespace goldenrule::delta
