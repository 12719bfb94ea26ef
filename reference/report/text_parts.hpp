// SPDX-License-Identifier: Apache-2.0
//
// Numbers and words that more than one part of a report has.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "fixtures/call/text.hpp"

namespace goldenrule::report {

/// Said of a number of elements: verdict::TensorReport::undefined.
[[nodiscard]] inline std::string no_right_value(std::int64_t n) {
  return fmt::format(
      "{} no right value (padded requests, gates without a logarithm, decisions that hang on a "
      "rounding, what overflows in fp32) and {} not compared",
      call::agreeing(n, "has", "have"), call::agreeing(n, "is", "are"));
}

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
