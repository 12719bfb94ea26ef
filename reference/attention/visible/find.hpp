// SPDX-License-Identifier: Apache-2.0
//
// Which keys the failing rows of a capture see, found by search: no table of mistakes is asked.
// Each failing row (query and head) has intervals of keys that reproduce it (readings.hpp); a form
// (forms.hpp) that reproduces all failing rows, or all of a request, of a head or of both, is said
// in words with how many rows it covers. Where no form does, the intervals of the first rows are.
//
// Chance. An interval or a form that has nothing to do with the kernel must bring every failing
// element into its budget, each with a probability of less than one half. Of F failing elements
// and c things that were tried at most c 2^-F are expected: a form, of at most 2^kTriedForms, and
// an interval, of n^2, are said where that is below 2^-kChanceBits.
//
// Bounds of the work are numbers of steps, so that the answer is the same on every machine.
#pragma once

#include "reference/verdict/slice.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::attention {

/// Nothing for calls that pass, and where nothing is found.
[[nodiscard]] verdict::Searched find_visible_sets(const verdict::Judgement& judgement);

}  // namespace goldenrule::attention
