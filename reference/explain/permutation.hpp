// SPDX-License-Identifier: Apache-2.0
//
// Results that are right, and stand in the wrong place: heads of an output in reverse order, states
// on the way with the most recent first, the halves of a tile exchanged. No row of the table of
// mistakes predicts them, since there are as many as there are axes and ways to walk along one; all
// of them are found by one search. Along each axis an element of the output is compared with what
// is predicted at other places of that axis, and the order that reproduces all of them is named:
//
//   reversed          y[i] = x[L - 1 - i]
//   rolled by n       y[i] = x[(i - n) mod L], halves exchanged where n = L / 2
//   n parts in turn   y[j n + a] = x[a L / n + j], n a divisor of L: parts that lie one after the
//                     other are taken an element of each in turn (n = L / 2: what was interleaved
//                     by two comes apart)
//   two exchanged     y[i] = x[j], y[j] = x[i]
//
// Tokens and checkpoints are ordered within each sequence, by its own length; tokens of a packed
// call also over the whole batch. States in a pool are ordered by the rows that write them.
//
// How much it takes to be found. An order is tried on a few of the elements that fail before it is
// tried on all, so that a wrong one costs next to nothing. The order found must reproduce every
// element within its budget, as any explanation must, and so must be the rest of the outputs: by
// chance that happens only where a handful of numbers is all there is.
#pragma once

#include <string>
#include <vector>

#include "reference/explain/capture.hpp"
#include "reference/explain/match.hpp"

namespace goldenrule::explain {

/// Puts the outputs of `prediction` that the capture does not have as they are into the order in
/// which it has them, where there is one. In the words of a report, one for each output that was
/// put into another order: "o is reversed along token". Empty, and nothing is changed, where some
/// output is reproduced in no order, or all of them in their own.
[[nodiscard]] std::vector<std::string> rearrange(const Capture& capture, const Matcher& matcher,
                                                 Prediction& prediction);

}  // namespace goldenrule::explain
