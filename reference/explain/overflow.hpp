// SPDX-License-Identifier: Apache-2.0
//
// Where a mistaken kernel may leave the range of fp32. Predictions are made in double, which holds
// 10^308; the kernel's state is fp32 and becomes Inf and then NaN beyond 3.4e38, which keys that
// are not normalised reach within tens of tokens: the step has the factor 1 - beta ||k||^2.
//
// An Inf stays in the state: Inf - Inf and 0 * Inf are NaN. So from the first token of a sequence
// and head at which a predicted value, with its spread, exceeds fp32, all that is written later may
// be NaN or Inf. The chunk form multiplies all rows of a chunk with one masked matrix, and a masked
// 0 times Inf is NaN: there the earlier tokens of the same chunk may be NaN as well.
#pragma once

#include "reference/explain/prediction.hpp"

namespace goldenrule::explain {

/// Fills PredictedOutput::may_overflow of all outputs.
void mark_overflows(const Capture& capture, Prediction& prediction);

}  // namespace goldenrule::explain
