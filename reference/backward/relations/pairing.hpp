// SPDX-License-Identifier: Apache-2.0
//
// One side of an identity: a sum of numbers times gradients, and what is granted to it (w of
// composed.hpp). Of independent errors the deviations, multiple and all, add in squares, what may
// be the same in every call adds linearly, and so do the roundings of the n terms in double,
// n 2^-52 of the sum of their sizes.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>

#include "reference/delta/relations/trial.hpp"

namespace goldenrule::backward {

class Pairing {
 public:
  void add(double x, double y) {
    sum_ += x * y;
    size_ += std::fabs(x * y);
    count_ += 1.0;
  }
  /// x times element `at` of a gradient.
  void add_gradient(relations::Trial& trial, const relations::Run& made, const std::string& name,
                    std::size_t at, double x, bool grants) {
    add(x, made.outputs.at(name)[static_cast<std::int64_t>(at)]);
    if (!grants) return;
    const relations::Grant& g = trial.base_granted().at(name)[at];
    granted_ = granted_ && g.bound >= 0.0;
    random2_ += x * x * g.random2;
    sure_ += std::fabs(x) * g.sure;
  }
  [[nodiscard]] double sum() const { return sum_; }
  [[nodiscard]] double independent() const {
    return granted_ ? std::sqrt(random2_) + sure_ + rounding() : relations::kNotGranted;
  }
  [[nodiscard]] double rounding() const { return size_ * count_ * 0x1p-52; }

 private:
  double sum_ = 0.0, size_ = 0.0, count_ = 0.0, random2_ = 0.0, sure_ = 0.0;
  bool granted_ = true;
};

}  // namespace goldenrule::backward
