// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/running_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/scalar/pack.hpp"

namespace goldenrule::delta {
namespace {

// 0 times a bound is 0, though it be infinite.
constexpr std::array<double, kTileColumns<double>> kNothing{};

}  // namespace

GOLDENRULE_VECTOR_CLONES void advance_row(const KeyTerms& key, const ColumnTerms& column,
                                          const double* after, const ElementRow& row) {
  constexpr int kColumns = kTileColumns<double>;
  const Roundings r = key.roundings;
  const double* sigma = key.kernel_alpha == 0.0 ? kNothing.data() : row.sigma;
  const double* bias = key.kernel_alpha == 0.0 ? kNothing.data() : row.bias;
  const double* carried_sigma = key.reach == 0.0 ? kNothing.data() : column.carried_sigma;
  const double* carried_bias = key.reach == 0.0 ? kNothing.data() : column.carried_bias;
  for (int c = 0; c < kColumns; ++c) {
    const double before = row.state[c];
    const double z = after[c];
    const double decayed = key.alpha * before;
    const double local2 = decayed * decayed + key.k * key.k * column.along2[c] + z * z;
    const double moved = key.kernel_alpha * sigma[c] + key.reach * carried_sigma[c];
    row.sigma[c] =
        std::sqrt(moved * moved + r.u2 * local2 + r.key2 * key.k * key.k * column.rounded2[c]);
    row.bias[c] = key.kernel_alpha * bias[c] + key.reach * carried_bias[c] +
                  key.alpha_error * std::fabs(before) + key.k * column.along_bias[c] +
                  r.u * (std::fabs(decayed) + std::fabs(z));
    row.state[c] = z;
  }
}

GOLDENRULE_VECTOR_CLONES void add_carried(double weight, const AlphaErrors& alpha,
                                          const ElementRow& row, double* sigma, double* bias) {
  constexpr int kColumns = kTileColumns<double>;
  const double* own_sigma = alpha.largest == 0.0 ? kNothing.data() : row.sigma;
  const double* own_bias = alpha.largest == 0.0 ? kNothing.data() : row.bias;
  for (int c = 0; c < kColumns; ++c) {
    sigma[c] += weight * alpha.largest * own_sigma[c];
    bias[c] += weight * (alpha.largest * own_bias[c] + alpha.error * std::fabs(row.state[c]));
  }
}

GOLDENRULE_VECTOR_CLONES void clip_row(double weight, const double* norm_sigma,
                                       const double* norm_bias, const ElementRow& row,
                                       const RowSums& sums) {
  constexpr int kColumns = kTileColumns<double>;
  for (int c = 0; c < kColumns; ++c) {
    row.sigma[c] = std::min(row.sigma[c], norm_sigma[c]);
    row.bias[c] = std::min(row.bias[c], norm_bias[c]);
    sums.sigma2[c] += row.sigma[c] * row.sigma[c];
    sums.bias2[c] += row.bias[c] * row.bias[c];
  }
  if (weight == 0.0) return;
  for (int c = 0; c < kColumns; ++c) {
    sums.sigma[c] += weight * row.sigma[c];
    sums.bias[c] += weight * row.bias[c];
  }
}

GOLDENRULE_VECTOR_CLONES void round_up(const double* x, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto nearest = static_cast<float>(x[i]);
    const std::uint32_t below = static_cast<double>(nearest) < x[i] ? 1 : 0;
    to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) + below);
  }
}

}  // namespace goldenrule::delta
