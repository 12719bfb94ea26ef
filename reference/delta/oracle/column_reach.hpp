// SPDX-License-Identifier: Apache-2.0
//
// What is read of a column of the state in a random direction: ||x|| H / sqrt(K), with H the norm
// that the column holds. Keys that repeat overwrite what stood along them, so after a token whose
// value is small by chance in a channel, or 0, the column is as small. It is no call of its own for
// that: its norms over the last tokens count as well, each half as much as the one
// behind it, less what the gates let go:
//
//   A_t = (alpha_max^2 A_{t-1} + ||S_t||^2) / 2,   A_0 = ||S_0||^2,   H_t^2 = max(A_t, ||S_t||^2).
//
// What is overwritten on purpose is so forgotten within a few tokens, however large it was.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace goldenrule::delta {

/// Of each column of a tile; `Row` is an array of double.
template <class Row>
class ColumnReach {
 public:
  /// `start2`: squared norms of the start columns.
  ColumnReach(std::int64_t K, const Row& start2) : K_(static_cast<double>(K)), mean2_(start2) {}

  void advance(double alpha_max, const Row& state2) {
    for (std::size_t c = 0; c < mean2_.size(); ++c) {
      mean2_[c] = (alpha_max * alpha_max * mean2_[c] + state2[c]) / 2.0;
      held2_[c] = std::fmax(mean2_[c], state2[c]);  // NaN: it met one, and then let go
    }
  }

  [[nodiscard]] double norm(std::size_t c) const { return std::sqrt(held2_[c]); }
  /// By an x of the norm `x_norm`.
  [[nodiscard]] double read_by(double x_norm, std::size_t c) const {
    return x_norm * norm(c) / std::sqrt(K_);
  }

 private:
  double K_;
  Row mean2_;
  Row held2_{};
};

}  // namespace goldenrule::delta
