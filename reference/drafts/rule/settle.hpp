// SPDX-License-Identifier: Apache-2.0
//
// The outcome that a kernel chose where fp32 leaves several. Which of them it takes is its own
// affair; that its numbers are those of one of them is not. A count of one outcome beside the
// tokens of another, a token that no outcome has, a page released that all of them keep: each is a
// mistake that only open rows show, since two parts of an engine that decide by different formulas
// disagree nowhere else. So a row is held against each outcome as a whole, over all outputs that
// are there, and if it is none of them it is judged as the one that it differs least from.
#pragma once

#include "fixtures/call/record.hpp"
#include "fixtures/call/tensor.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::drafts {

/// Defines the open rows of `expected`, the evaluation of `record`, to which `outputs` gives the
/// numbers of no outcome. The others stay undefined: that they agree proves nothing. Outputs of
/// another shape than expected, which a verdict refuses, are not asked.
void settle(const call::Record& record, const call::TensorMap& outputs,
            verdict::Expectations& expected);

}  // namespace goldenrule::drafts
