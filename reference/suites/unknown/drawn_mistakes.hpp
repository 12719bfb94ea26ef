// SPDX-License-Identifier: Apache-2.0
//
// Draws that plant mistakes of the tables and of the generators together, or in some blocks only.
#pragma once

#include "reference/calls/mistake.hpp"
#include "reference/suites/unknown/draws.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::suites {

/// Of the table of an operation or, as often, of its generators.
[[nodiscard]] const calls::Mistake& drawn_mistake(const verdict::Slice& slice, Draws& draws);
/// Of the generators.
[[nodiscard]] const calls::Mistake& drawn_generated(const verdict::Slice& slice, Draws& draws);

}  // namespace goldenrule::suites
