// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/tile_sum.hpp"

#include <algorithm>

namespace goldenrule::backward {

Floats tile_sum(const Floats& products, Rounder& rounder) {
  using contract::AdjointPoint;
  using Eigen::Index;
  if (!rounder.rounds(AdjointPoint::kStateGate)) return products.rowwise().sum().transpose();
  constexpr Index kOfThread = 8;
  const Floats terms = rounder.rounded(AdjointPoint::kStateGate, products.transpose());
  const Index K = terms.cols();
  Index n = (terms.rows() + kOfThread - 1) / kOfThread;
  Floats sums = Floats::Zero(n, K);
  for (Index i = 0; i < std::min(kOfThread, terms.rows()); ++i) {
    const Index have = (terms.rows() - i + kOfThread - 1) / kOfThread;
    for (Index thread = 0; thread < have; ++thread) {
      sums.row(thread) += terms.row(thread * kOfThread + i);
    }
    if (i > 0) rounder.apply(AdjointPoint::kStateGate, sums.data(), have * K);
  }
  for (; n > 1; n = (n + 1) / 2) {
    const Index half = (n + 1) / 2;
    sums.topRows(n - half) += sums.middleRows(half, n - half);
    rounder.apply(AdjointPoint::kStateGate, sums.data(), (n - half) * K);
  }
  return sums.row(0);
}

}  // namespace goldenrule::backward
