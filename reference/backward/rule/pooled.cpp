// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/pooled.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace goldenrule::backward {
namespace {

struct Mean {
  double sum = 0.0, count = 0.0;

  void add(double x) {
    sum += x;
    count += 1.0;
  }
  [[nodiscard]] double value() const { return count > 0.0 ? sum / count : 0.0; }
};

}  // namespace

std::vector<double> MeanSquares::mean(int runs) const {
  std::vector<double> means = squares_;
  for (double& x : means) x /= runs;
  return means;
}

std::vector<double> pooled(const std::vector<double>& mean_squares, std::int64_t channels,
                           std::int64_t together) {
  std::vector<double> sigma2 = mean_squares;
  const auto width = static_cast<std::size_t>(channels);
  const std::size_t rows = width == 0 ? 0 : mean_squares.size() / width;
  for (std::size_t first = 0; first < rows; first += static_cast<std::size_t>(together)) {
    const std::size_t last = std::min(rows, first + static_cast<std::size_t>(together));
    std::vector<double> of_channel(width, 0.0);
    std::vector<double> of_row(last - first, 0.0);
    double all = 0.0;
    for (std::size_t t = first; t < last; ++t) {
      for (std::size_t x = 0; x < width; ++x) {
        const double e2 = mean_squares[t * width + x];
        of_channel[x] += e2;
        of_row[t - first] += e2;
        all += e2;
      }
    }
    if (all == 0.0) continue;
    for (std::size_t t = first; t < last; ++t) {
      for (std::size_t x = 0; x < width; ++x) {
        double& s2 = sigma2[t * width + x];
        s2 = 0.5 * s2 + 0.5 * of_row[t - first] * (of_channel[x] / all);
      }
    }
  }
  return sigma2;
}

std::vector<double> pooled_in_units(const std::vector<double>& mean_squares,
                                    std::span<const double> units, std::int64_t together) {
  std::vector<double> sigma2 = mean_squares;
  const std::size_t n = mean_squares.size();
  for (std::size_t first = 0; first < n; first += static_cast<std::size_t>(together)) {
    const std::size_t last = std::min(n, first + static_cast<std::size_t>(together));
    Mean in_units;
    Mean lost;
    const auto is_lost = [&](std::size_t i) { return !(mean_squares[i] < units[i] * units[i]); };
    for (std::size_t i = first; i < last; ++i) {
      if (is_lost(i)) {
        lost.add(mean_squares[i]);
      } else {
        in_units.add(mean_squares[i] / (units[i] * units[i]));
      }
    }
    for (std::size_t i = first; i < last; ++i) {
      const double held = is_lost(i) ? lost.value() : units[i] * units[i] * in_units.value();
      sigma2[i] = 0.5 * sigma2[i] + 0.5 * held;
    }
  }
  return sigma2;
}

std::vector<double> pooled_sums(const std::vector<double>& mean_squares,
                                std::span<const double> of_terms) {
  Mean log_shares;
  for (std::size_t i = 0; i < mean_squares.size(); ++i) {
    if (mean_squares[i] > 0.0 && of_terms[i] > 0.0) {
      log_shares.add(std::log(mean_squares[i] / of_terms[i]));
    }
  }
  const double share = std::exp(log_shares.value());
  std::vector<double> sigma2 = mean_squares;
  for (std::size_t i = 0; i < sigma2.size(); ++i) {
    sigma2[i] = 0.5 * sigma2[i] + 0.5 * of_terms[i] * share;
  }
  return sigma2;
}

std::vector<double> among_neighbours(const std::vector<double>& sizes, std::int64_t together) {
  std::vector<double> held = sizes;
  for (std::size_t first = 0; first < sizes.size(); first += static_cast<std::size_t>(together)) {
    const std::size_t last = std::min(sizes.size(), first + static_cast<std::size_t>(together));
    Mean squares;
    for (std::size_t i = first; i < last; ++i) squares.add(sizes[i] * sizes[i]);
    for (std::size_t i = first; i < last; ++i) {
      held[i] = std::sqrt(0.5 * sizes[i] * sizes[i] + 0.5 * squares.value());
    }
  }
  return held;
}

}  // namespace goldenrule::backward
