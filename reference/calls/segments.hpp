// SPDX-License-Identifier: Apache-2.0
//
// A kernel applied to stretches of the token axis instead of the sequences of its call: a state
// that is dropped at chunk ends, tokens that are left out and tokens of a neighbour that slip in
// are all right results for the wrong stretches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/calls/mistake.hpp"

namespace goldenrule::calls {

/// Tokens [first, first + count) of the flattened axis, started from block `start` of
/// initial_state (-1: from zero).
struct Segment {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t start = -1;
};

/// Runs `kernel` on a prefill call whose sequences are the segments. The result has o
/// [sum of counts, HV, V] and final_state [segments, HV, state], in the order of the segments.
/// `states` [.., HV, state] takes the place of initial_state where it is given.
[[nodiscard]] call::TensorMap run_segments(const call::Record& record, const Kernel& kernel,
                                           std::span<const Segment> segments,
                                           const call::Tensor* states = nullptr);

}  // namespace goldenrule::calls
