// SPDX-License-Identifier: Apache-2.0
//
// Words that the reports have in common.
#pragma once

namespace goldenrule::report {

/// Said of a number of elements: verdict::TensorReport::undefined.
inline constexpr const char* kNoRightValue =
    "have no right value (padded requests, gates without a logarithm, decisions that hang on a "
    "rounding, what overflows in fp32) and are not compared";

}  // namespace goldenrule::report
