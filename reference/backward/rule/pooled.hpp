// SPDX-License-Identifier: Apache-2.0
//
// What an element's neighbours say of it: of its sigma, from the errors that a few runs leave
// (budget/grant.hpp), and of its size, where it is small by chance (evaluate.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace goldenrule::backward {

inline constexpr std::int64_t kNeighbours = 64;  ///< tokens: a chunk of most kernels

/// Mean squares of the errors of runs: sums until finished.
class MeanSquares {
 public:
  MeanSquares() = default;
  explicit MeanSquares(std::int64_t size) : squares_(static_cast<std::size_t>(size), 0.0) {}

  /// The error of an element in one run.
  void add(std::size_t at, double error) { squares_[at] += error * error; }
  /// Over `runs`.
  [[nodiscard]] std::vector<double> mean(int runs) const;

 private:
  std::vector<double> squares_;
};

/// sigma^2 of a matrix [rows, channels], `together` rows at a time.
[[nodiscard]] std::vector<double> pooled(const std::vector<double>& mean_squares,
                                         std::int64_t channels, std::int64_t together);

/// sigma^2 of numbers in units of their own, `together` of them at a time. Those whose error is as
/// large as their unit say nothing of the others: they have one another for neighbours, as numbers.
[[nodiscard]] std::vector<double> pooled_in_units(const std::vector<double>& mean_squares,
                                                  std::span<const double> units,
                                                  std::int64_t together);

/// sigma^2 of sums from the mean squares of their errors and the sums of those of their terms. How
/// large the errors of terms are each sum says itself, by many terms in few runs: the large errors
/// of one head pay for no other. How they add up (independent: share 1; all alike: as many as there
/// are terms) is alike in all sums and taken from all: the geometric mean, which one odd sum of n
/// moves by its n-th root, and which is exp(-1/r) of a mean square of r runs.
[[nodiscard]] std::vector<double> pooled_sums(const std::vector<double>& mean_squares,
                                              std::span<const double> of_terms);

/// Sizes of tokens, each at least 1 / sqrt(2) of the root mean square of `together` of them.
[[nodiscard]] std::vector<double> among_neighbours(const std::vector<double>& sizes,
                                                   std::int64_t together);

}  // namespace goldenrule::backward
