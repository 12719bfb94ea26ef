// SPDX-License-Identifier: Apache-2.0
//
// The call that means a plan: its keys gathered as fresh ones, each with its position
// (key_positions), and the range of positions that each query sees (visible_first, visible_last) in
// the place of masks, windows and tables. make_plan of it has the same runs of keys in the same
// order, so that a kernel gives the same bits as for the plan.
#pragma once

#include "reference/attention/plan/plan.hpp"

namespace goldenrule::attention {

/// `record` is the call that the plan was made of, but for q. Where plan and call differ in scale
/// and soft cap alone, so does the result.
[[nodiscard]] call::Record call_of(const call::Record& record, const Plan& plan);

}  // namespace goldenrule::attention
