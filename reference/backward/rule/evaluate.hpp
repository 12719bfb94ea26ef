// SPDX-License-Identifier: Apache-2.0
//
// The oracle of the backward pass: the gradients of a whole call, in parallel over sequences and
// query/key heads. The value heads of such a group are run one after another, their parts of dq and
// dk added up in rising order, and the parameters' gradients over the sequences in theirs, so the
// result does not depend on the number of threads.
//
// Sizes. A gradient that is one sum (dbeta, dg of one gate per head, dA_log, ddt_bias) may be small
// by chance, and says no less then: what a budget is held against is at least what the sum has
// where its terms have random signs (verdict::Exact::reach), the root of the sum of their squares.
// A token may be small beside its neighbours as well, where its gate erases: no optimizer sees it
// beside them, and none of its digits need be right. So a budget is held against no less than half
// of what the tokens of a chunk have, as mean squares; of dv the same channel by channel
// (pooled.hpp). What is granted is measured in a token's own size (verdict::Exact::unit).
#pragma once

#include "reference/backward/rule/call_lanes.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::backward {

/// Every output that the call can have, sizes without a certificate too. Throws Error for a call
/// that makes no sense.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& record,
                                             scalar::Precision precision,
                                             const verdict::EvaluationOptions& options = {});

}  // namespace goldenrule::backward
