// SPDX-License-Identifier: Apache-2.0
//
// The exact outputs of a draft acceptance: integers, so their radius is 0 in every tier, and what
// is open in fp32 (decide.hpp) is undefined, with the number there that exact arithmetic leads to:
// that of one outcome in all elements of a row. Nothing is granted: a number is right or it is not.
#pragma once

#include "fixtures/call/record.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::drafts {

/// Throws Error for a call that makes no sense. Bitwise independent of the thread count.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& record);

}  // namespace goldenrule::drafts
