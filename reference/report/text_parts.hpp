// SPDX-License-Identifier: Apache-2.0
//
// Numbers and words that more than one part of a report has.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace goldenrule::report {

/// Said of a number of elements: verdict::TensorReport::undefined.
inline constexpr const char* kNoRightValue =
    "have no right value (padded requests, gates without a logarithm, decisions that hang on a "
    "rounding, what overflows in fp32) and are not compared";

/// A number that needs a budget; there is none where no verdict is given.
[[nodiscard]] inline std::string ratio_text(double x) {
  return std::isnan(x) ? "-" : fmt::format("{:.3g}", x);
}

/// A value, whatever the sign bit of a NaN.
[[nodiscard]] inline std::string value_text(double x) {
  return std::isnan(x) ? "nan" : fmt::format("{:.9g}", x);
}

[[nodiscard]] inline std::string error_text(double x) {
  return std::isnan(x) ? "nan" : fmt::format("{:.3g}", x);
}

}  // namespace goldenrule::report
