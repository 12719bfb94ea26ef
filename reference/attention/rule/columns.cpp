// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/rule/columns.hpp"

#include <algorithm>
#include <cmath>

namespace goldenrule::attention {

GOLDENRULE_VECTOR_CLONES void add_products(const double* q, const double* keys, std::size_t K,
                                           double* dot, double* size) {
  constexpr auto kKeys = static_cast<std::size_t>(kKeysTogether);
  scalar::Pack sum, absolute;
  for (std::size_t d = 0; d < K; ++d) {
    scalar::Pack k;
    for (std::size_t i = 0; i < kKeys; ++i) k.v[i] = keys[i * K + d];
    const scalar::Pack product = scalar::broadcast(q[d]) * k;
    scalar::Pack positive;
    for (std::size_t i = 0; i < kKeys; ++i) positive.v[i] = std::fabs(product.v[i]);
    sum += product;
    absolute += positive;
  }
  for (std::size_t i = 0; i < kKeys; ++i) {
    dot[i] = sum.v[i];
    size[i] = absolute.v[i];
  }
}

GOLDENRULE_VECTOR_CLONES void add_spread(double w, double w_error, const double* v, const double* o,
                                         std::size_t columns, const SpreadSums& to) {
  double* __restrict e_spread = to.e_spread;
  double* __restrict v_sum = to.v_sum;
  double* __restrict v_max = to.v_max;
  for (std::size_t x = 0; x < columns; ++x) {
    const double size = std::fabs(v[x]);
    e_spread[x] += w_error * std::fabs(v[x] - o[x]);
    v_sum[x] += w * size;
    v_max[x] = v_max[x] < size ? size : v_max[x];
  }
}

GOLDENRULE_VECTOR_CLONES void add_share(const KeyShare& key, const double* v, const double* o,
                                        const double* mean, std::size_t columns,
                                        const BudgetSums& to) {
  const double w = key.w;
  const double linear_error = key.linear;
  const double lost_share = key.lost;
  double* __restrict linear = to.linear;
  double* __restrict lost = to.lost;
  double* __restrict size = to.size;
  double* __restrict top = to.top;
  double* __restrict largest = to.largest;
  double* __restrict partial = to.partial;
  for (std::size_t x = 0; x < columns; ++x) {
    const double apart = std::fabs(v[x] - o[x]);
    const double absolute = std::fabs(v[x]);
    linear[x] += linear_error * apart;
    lost[x] += lost_share * std::fabs(v[x] - mean[x]);
    size[x] += w * absolute;
    top[x] = top[x] < apart ? apart : top[x];
    largest[x] = largest[x] < absolute ? absolute : largest[x];
    partial[x] += w * v[x];
  }
}

GOLDENRULE_VECTOR_CLONES void add_partial(const double* partial, const double* o,
                                          std::size_t columns, double* forward, double* backward) {
  double* __restrict ahead = forward;
  double* __restrict behind = backward;
  for (std::size_t x = 0; x < columns; ++x) {
    ahead[x] += std::fabs(partial[x]);
    behind[x] += std::fabs(o[x] - partial[x]);
  }
}

GOLDENRULE_VECTOR_CLONES void add_term(double factor, double rho, const double* v, const double* o,
                                       std::size_t columns, double* sum, double* square) {
  double* __restrict sums = sum;
  double* __restrict squares = square;
  for (std::size_t x = 0; x < columns; ++x) {
    const double term = factor * (v[x] - rho * o[x]);
    sums[x] += term;
    squares[x] += term * term;
  }
}

GOLDENRULE_VECTOR_CLONES void close_terms(std::size_t columns, double* sum, double* square,
                                          double* total) {
  double* __restrict sums = sum;
  double* __restrict squares = square;
  double* __restrict totals = total;
  for (std::size_t x = 0; x < columns; ++x) {
    const double of_sum = sums[x] * sums[x];
    totals[x] += of_sum < squares[x] ? squares[x] : of_sum;
    sums[x] = squares[x] = 0.0;
  }
}

}  // namespace goldenrule::attention
