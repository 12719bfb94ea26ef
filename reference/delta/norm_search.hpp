// SPDX-License-Identifier: Apache-2.0
//
// Which norm of q and k a failing kernel has: its form, and the eps as a number. The table of
// mistakes names forms and an eps that is left out; an eps that is merely another one (1e-5 for
// 1e-6) is no row of it.
//
// For each form x / sqrt(n^2 + eps), x / max(n, eps), x / (n + eps) the exact outputs are compared
// with the captured ones, in budgets of the right call, at one eps for each decade from 1e-14 to
// 1e4 and beside the declared one. Where one of them is nearer than the right call, golden section
// finds the least sum of squares around it. The decimal of fewest digits there is judged as the eps
// of a call: every output must be within its own budget. The eps that pass with that budget form an
// interval, whose ends bisection finds. Where its ends are a factor of 2 apart, or 0 passes, the
// interval is said and no number.
//
// Chance. A number that is chosen reproduces one number, whatever went wrong. With budget b and an
// error of d that is unrelated to the norm an element is reproduced with probability of about b / d
// (explain/by_blocks.hpp), and value channels of a row and head are independent. So the product of
// b / d over the failing channels but one, of each the best element, must be at most kChance.
//
// Another form is nearer than the right call only where some eps of the declared one is: where none
// is, no other form is tried.
//
// All of it is done on a few value channels first, since those of a kernel have one norm: where no
// eps passes there, none is sought in the call.
//
// Cost: 22 evaluations in double of few channels, and 40 to 200 more where an eps is nearer; of all
// channels as many where an eps passes. A call of more than 2^26 visits of state elements is not
// searched.
#pragma once

#include "reference/verdict/slice.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::delta {

/// A sentence for the declared form, and one for each other form where the outputs do not tell the
/// number of that one. None of a call without a norm, and none of another form with the declared
/// eps, which the table names.
[[nodiscard]] verdict::Searched find_norm(const verdict::Judgement& judgement);

}  // namespace goldenrule::delta
