// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/relative_errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace goldenrule::delta {
namespace {

// Of numbers that are not negative, the upper one of two.
double median(std::vector<double>& x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::ranges::nth_element(x, middle);
  return *middle;
}

// The mean of numbers of which some may be far beyond the others: these count as kFar medians.
// Where most are 0 it is the mean.
double mean_without_far(std::vector<double>& x) {
  constexpr double kFar = 16.0;
  if (x.empty()) return 0.0;
  const double middle = median(x);
  const double most = middle > 0.0 ? kFar * middle : std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (const double y : x) sum += std::min(y, most);
  return sum / static_cast<double>(x.size());
}

// The mean error of a block in the units of its elements.
template <class Block, class Units>
double mean_ratio(const Block& block, const Units& unit2, double smallest) {
  std::vector<double> ratios;
  double of_small = 0.0, units = 0.0;
  for (Eigen::Index i = 0; i < block.rows(); ++i) {
    for (Eigen::Index x = 0; x < block.cols(); ++x) {
      const double ratio = block(i, x) / unit2(i, x);
      if (!(unit2(i, x) > 0.0) || !std::isfinite(unit2(i, x) + ratio)) continue;
      if (unit2(i, x) > smallest * smallest) {
        ratios.push_back(ratio);
      } else {
        of_small += block(i, x);
        units += unit2(i, x);
      }
    }
  }
  if (!ratios.empty()) return mean_without_far(ratios);
  return units > 0.0 ? of_small / units : 0.0;
}

}  // namespace

void to_sigma(Matrix<double>& squares, const Matrix<double>& size2, double smallest,
              Eigen::Index together, int runs) {
  for (Eigen::Index first = 0; first < squares.rows(); first += together) {
    const Eigen::Index rows = std::min<Eigen::Index>(together, squares.rows() - first);
    auto block = squares.middleRows(first, rows);
    const auto unit2 = size2.middleRows(first, rows);
    const double mean = mean_ratio(block, unit2, smallest);
    for (Eigen::Index i = 0; i < rows; ++i) {
      for (Eigen::Index x = 0; x < block.cols(); ++x) {
        const double like = mean * unit2(i, x);
        const double other = std::isfinite(like) && unit2(i, x) > 0.0 ? like : block(i, x);
        block(i, x) = std::sqrt(0.5 * (block(i, x) + other) / runs);
      }
    }
  }
}

Matrix<double> channel_errors(const Matrix<double>& squares) {
  const Eigen::VectorXd rows = squares.rowwise().mean();
  Eigen::RowVectorXd channels(squares.cols());
  for (Eigen::Index x = 0; x < squares.cols(); ++x) {
    std::vector<double> ratios;
    for (Eigen::Index i = 0; i < squares.rows(); ++i) {
      const double ratio = squares(i, x) / rows(i);
      if (std::isfinite(ratio)) ratios.push_back(ratio);
    }
    channels(x) = mean_without_far(ratios);
  }
  return rows * channels;
}

}  // namespace goldenrule::delta
