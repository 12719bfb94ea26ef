// SPDX-License-Identifier: Apache-2.0
//
// Sums over the elements of a part of a capture: how much of its error a prediction accounts for,
// and what stands where the prediction has nothing written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace goldenrule::explain {

/// Finite elements that are predicted as unwritten.
struct Leftover {
  std::int64_t count = 0;
  bool constant = true;  // one number in all of them
  double first = 0.0;
  double yy = 0.0, yg = 0.0, gg = 0.0;  // products with themselves and with the exact results

  void add(double y, double exact) {
    if (count++ == 0) first = y;
    constant = constant && y == first;
    if (!std::isfinite(exact)) return;
    yy += y * y;
    yg += y * exact;
    gg += exact * exact;
  }
  [[nodiscard]] bool is_constant() const { return constant && (count > 1 || first == 0.0); }
  [[nodiscard]] bool resembles_results() const { return 4.0 * yg * yg > yy * gg; }
};

/// The share of the error of failing elements that is gone.
struct ErrorShare {
  double left = 0.0, before = 0.0;  // squared errors of the finite ones
  std::int64_t finite = 0, not_finite = 0, reproduced = 0;

  /// An element that errs by `error`, and is `distance` from what is predicted.
  void add(double error, double distance, bool is_reproduced) {
    if (std::isfinite(error) && std::isfinite(distance)) {
      // Scaled by the error, so that no power overflows where the values do.
      before += 1.0;
      left += distance / std::fabs(error) * (distance / std::fabs(error));
      ++finite;
    } else {
      ++not_finite;
      reproduced += is_reproduced ? 1 : 0;
    }
  }
  /// An element of which nothing is said.
  void add_unaccounted() { ++not_finite; }
  void add(const ErrorShare& other) {
    left += other.left;
    before += other.before;
    finite += other.finite;
    not_finite += other.not_finite;
    reproduced += other.reproduced;
  }
  [[nodiscard]] std::int64_t count() const { return finite + not_finite; }
  // Counts NaN and Inf as found or not, since they have no error.
  [[nodiscard]] double accounted() const {
    const double gone = before > 0.0 ? std::max(0.0, 1.0 - left / before) : 0.0;
    return (gone * static_cast<double>(finite) + static_cast<double>(reproduced)) /
           static_cast<double>(count());
  }
};

}  // namespace goldenrule::explain
