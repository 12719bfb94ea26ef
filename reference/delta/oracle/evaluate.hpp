// SPDX-License-Identifier: Apache-2.0
//
// The oracle: runs the plan of a call through the recurrent form in one precision tier and returns,
// for each output, the exact result rounded to double and a certified radius. The same code serves
// every mode; see call::Plan. It knows no contract: what a kernel is granted beside the exact
// result is the budget's business (budget/grant.hpp).
#pragma once

#include <string_view>

#include "fixtures/call/record.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// o, and the states that `options` ask for. Memory: oracle/memory.hpp. Throws Error as
/// call::make_plan does. The result is bitwise independent of the thread count.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& record,
                                             scalar::Precision precision,
                                             const verdict::EvaluationOptions& options = {});

}  // namespace goldenrule::delta
