// SPDX-License-Identifier: Apache-2.0
//
// Where a mistaken kernel may leave the range of fp32. Predictions are made in double, which holds
// 10^308; the kernel's state is fp32 and becomes Inf and then NaN beyond 3.4e38, which keys that
// are not normalised reach within tens of tokens: the step has the factor 1 - beta ||k||^2.
//
// An Inf stays in the state: Inf - Inf and 0 * Inf are NaN. So from the first token of a sequence
// and head at which a predicted value, with its spread, exceeds fp32, all that is written later may
// be NaN or Inf. The chunk form multiplies all rows of a chunk with one masked matrix, and a masked
// 0 times Inf is NaN: there the earlier tokens of the same chunk may be NaN as well. It also forms
// numbers that no prediction has: powers of the decays of a chunk, logarithms of gates that a
// mistake has made negative. So where a capture has NaN and Inf, the mistake is made with the
// emulated kernel of the contract as well (`overflowed`), and what that gives may be NaN or Inf.
#pragma once

#include "reference/explain/prediction.hpp"

namespace goldenrule::explain {

/// Fills PredictedOutput::may_overflow of all outputs.
void mark_overflows(const Capture& capture, Prediction& prediction);

/// The same from the outputs of an emulated kernel that makes the mistake.
void mark_overflows(const call::TensorMap& emulated, Prediction& prediction);

/// Whether a capture has NaN or Inf for what is a number, and is small enough to be emulated for
/// each hypothesis.
[[nodiscard]] bool overflowed(const Capture& capture);

}  // namespace goldenrule::explain
