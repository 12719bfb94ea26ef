// SPDX-License-Identifier: Apache-2.0
//
// How much a verdict on a call of attention computes, known from its integers before it begins. A
// page can be named any number of times, so a file of a few kilobytes may describe millions of keys
// for each of thousands of rows: its memory is bounded by memory.hpp, its work is this.
//
//   pairs   of a row (query and query head) and a key that it sees, as the plan says
//   visits  of a run of keys by a group of rows, which looks for keys in it
//
// Core-seconds are these times what they cost in a tier, constants that were measured once: the
// same call has the same number everywhere. The count of pairs is exact where the positions of the
// keys rise and there is no hole between them, and an upper bound elsewhere.
#pragma once

#include "reference/attention/plan/plan.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::attention {

struct Extent {
  double pairs = 0.0, visits = 0.0;
};

[[nodiscard]] Extent extent_of(const Plan& plan);

/// Of one evaluation and what a contract grants beside it.
[[nodiscard]] double core_seconds(const Extent& extent, const Dims& dims,
                                  scalar::Precision precision);

}  // namespace goldenrule::attention
