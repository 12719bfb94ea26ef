// SPDX-License-Identifier: Apache-2.0
//
// A kernel applied to stretches of the token axis instead of the sequences of its call: a state
// that is dropped at chunk ends, tokens that are left out and tokens of a neighbour that slip in
// are all right results for the wrong stretches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/calls/mistake.hpp"

namespace goldenrule::calls {

/// Tokens [first, first + count) of the flattened axis, started from block `start` of
/// initial_state (-1: from zero).
struct Segment {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t start = -1;
  /// The sequence that the tokens are taken for, and how many of its tokens stand before them: the
  /// segment leaves the checkpoints of that sequence which lie behind those. -1: none.
  std::int64_t sequence = -1;
  std::int64_t begin = 0;
};

/// Runs `kernel` on a prefill call whose sequences are the segments. The result has o
/// [sum of counts, HV, V], final_state [segments, HV, state] and, where the segments leave any,
/// checkpoints, in the order of the segments. `states` [.., HV, state] takes the place of
/// initial_state where it is given.
[[nodiscard]] call::TensorMap run_segments(const call::Record& record, const Kernel& kernel,
                                           std::span<const Segment> segments,
                                           const call::Tensor* states = nullptr);

/// The outputs of a prefill call before its kernel writes them: NaN, the content of a pool, and
/// zeros in o of padded sequences.
[[nodiscard]] call::TensorMap nothing_written(const call::Record& record, const call::Plan& plan);

/// Puts what run_segments gave for `segments` where the call has it: o at the tokens, the state of
/// the last segment of a sequence, and checkpoints.
void store_segments(const call::Record& record, const call::Plan& plan,
                    std::span<const Segment> segments, const call::TensorMap& parts,
                    call::TensorMap& outputs);

}  // namespace goldenrule::calls
