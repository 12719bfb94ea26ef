// SPDX-License-Identifier: Apache-2.0
//
// How much memory a verdict takes, from the shapes of a call alone, so that a small file that
// describes a huge call is refused before anything is allocated. Upper bounds: what is counted is
// what evaluate.cpp, budget/spread.cpp, verdict/comparison.cpp and explain/ hold at once.
//
//   expectation   16 bytes for each element of o and of the states that are judged: golden f64,
//                 radius and spread f32; per row and head what the call does with it, and reach and
//                 flushing
//   lanes         per token q^, k^, the gates and beta in the widest tier, what the bounds need of
//   a
//                 token and one column sum per tile; all lanes, or those of 64 MiB and one more
//   spread        on every thread one lane in double, its perturbed copy, and six matrices
//                 [tokens, V]: v, the exact o, a run, its squares, two of systematic errors
//   comparison    one ratio in f32 for each element of the largest output
//   sequences     a plan entry and its snapshots
//   stages        17 bytes for each element, twice while another form is tried; on every thread the
//                 stages of one lane in the widest tier, and ten times in double while it is run
//   explanation   per element of o and of the states: a second capture, two evaluations that
//                 mistakes are run on, the outputs of one mistake, two predictions with their
//                 spreads, and the sums of repeated runs
//
// Lanes, spread and comparison follow one another. Where the inputs have no sensible shape only the
// tensors count: such a call is refused once they are there.
#pragma once

#include "reference/verdict/memory.hpp"

namespace goldenrule::delta {

/// `threads` that work side by side.
[[nodiscard]] verdict::Need memory_needed(const verdict::Declared& call, int threads);

}  // namespace goldenrule::delta
