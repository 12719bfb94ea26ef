// SPDX-License-Identifier: Apache-2.0
//
// How long the parts of a verdict on a call of the delta rule take, before they are begun. A step
// is a visit of one element of a state. A token of one head takes, with W = max(V, 8) the width of
// a tile, in a recurrence K W steps, and in chunks of C tokens
//
//   K W + C (K + W + C/3),
//
// the products of a chunk with its keys, with its values and the inverse of its triangle. To that
// comes what a gate takes: an exponential and a logarithm, which in the tiers of many digits cost
// more than the state of a small head.
#pragma once

#include <cstdint>

#include "fixtures/call/plan.hpp"
#include "reference/scalar/precision.hpp"

namespace goldenrule::delta {

/// Steps of all tokens in chunks of `chunk` tokens, 0: one by one. Of a tree, of all its paths.
[[nodiscard]] double steps_of(const call::Record& record, const call::Plan& plan,
                              std::int64_t chunk);

/// Core-seconds of one evaluation in a tier, in chunks of `chunk` tokens, 0: one by one.
[[nodiscard]] double evaluation_seconds(const call::Record& record, const call::Plan& plan,
                                        std::int64_t chunk, scalar::Precision tier);

/// Core-seconds of emulated runs that take `steps` together.
[[nodiscard]] double run_seconds(double steps);

}  // namespace goldenrule::delta
