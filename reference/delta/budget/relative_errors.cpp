// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/relative_errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace goldenrule::delta {

void to_sigma(Matrix<double>& squares, const Matrix<double>& size2, double smallest,
              Eigen::Index together, int runs) {
  const auto mean_ratio = [&](const auto& block, const auto& unit2, double least) {
    double sum = 0.0;
    std::int64_t count = 0;
    for (Eigen::Index i = 0; i < block.rows(); ++i) {
      for (Eigen::Index x = 0; x < block.cols(); ++x) {
        const double ratio = block(i, x) / unit2(i, x);
        if (!(unit2(i, x) > least) || !std::isfinite(unit2(i, x) + ratio)) continue;
        sum += ratio;
        ++count;
      }
    }
    return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
  };
  for (Eigen::Index first = 0; first < squares.rows(); first += together) {
    const Eigen::Index rows = std::min<Eigen::Index>(together, squares.rows() - first);
    auto block = squares.middleRows(first, rows);
    const auto unit2 = size2.middleRows(first, rows);
    std::optional<double> mean = mean_ratio(block, unit2, smallest * smallest);
    if (!mean) mean = mean_ratio(block, unit2, 0.0);
    for (Eigen::Index i = 0; i < rows; ++i) {
      for (Eigen::Index x = 0; x < block.cols(); ++x) {
        const double like = mean.value_or(0.0) * unit2(i, x);
        const double other = std::isfinite(like) && unit2(i, x) > 0.0 ? like : block(i, x);
        block(i, x) = std::sqrt(0.5 * (block(i, x) + other) / runs);
      }
    }
  }
}

Matrix<double> channel_errors(const Matrix<double>& squares) {
  return squares.colwise().mean().replicate(squares.rows(), 1);
}

}  // namespace goldenrule::delta
