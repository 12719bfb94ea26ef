// SPDX-License-Identifier: Apache-2.0
//
// Variances of sums whose terms err alike within a bin and independently between bins (grant.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace goldenrule::attention {

/// Per column, the sum over bins of max((sum of the bin)^2, sum of squares).
class Binned {
 public:
  explicit Binned(std::size_t columns) : sum_(columns), square_(columns), total_(columns) {}

  void add(std::size_t x, double value) {
    sum_[x] += value;
    square_[x] += value * value;
  }
  void close() {
    for (std::size_t x = 0; x < sum_.size(); ++x) {
      total_[x] += std::max(sum_[x] * sum_[x], square_[x]);
      sum_[x] = square_[x] = 0.0;
    }
  }
  [[nodiscard]] double total(std::size_t x) const { return total_[x]; }

 private:
  std::vector<double> sum_, square_, total_;
};

}  // namespace goldenrule::attention
