// SPDX-License-Identifier: Apache-2.0
//
// Variances of sums whose terms err alike within a bin and independently between bins (grant.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "reference/attention/rule/columns.hpp"

namespace goldenrule::attention {

/// Per column, the sum over bins of max((sum of the bin)^2, sum of squares).
class Binned {
 public:
  explicit Binned(std::size_t columns) : sum_(columns), square_(columns), total_(columns) {}

  /// factor (v - rho o) in the first `count` columns.
  void add(double factor, double rho, const double* v, const double* o, std::size_t count) {
    add_term(factor, rho, v, o, count, sum_.data(), square_.data());
  }
  void add(std::size_t x, double value) {
    sum_[x] += value;
    square_[x] += value * value;
  }
  void close() { close_terms(sum_.size(), sum_.data(), square_.data(), total_.data()); }
  [[nodiscard]] double total(std::size_t x) const { return total_[x]; }

 private:
  std::vector<double> sum_, square_, total_;
};

}  // namespace goldenrule::attention
