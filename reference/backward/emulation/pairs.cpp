// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/emulation/pairs.hpp"

#include <algorithm>

namespace goldenrule::backward {
namespace {

constexpr Eigen::Index kBlock = 16;

// exp(G_i - at) of rows [first, first + n), or exp(at - G_i).
Floats folded(const Sums& G, Eigen::Index first, Eigen::Index n, Eigen::Index at, bool from) {
  Floats decay(n, G.cols());
  for (Eigen::Index i = 0; i < n; ++i) {
    const double sign = from ? 1.0 : -1.0;
    decay.row(i) = (sign * (G.row(first + i) - G.row(at))).cast<float>().array().exp();
  }
  return decay;
}

// The sums in log2(n) passes.
Sums sums_in_a_tree(Sums x, Rounder& rounder) {
  for (Eigen::Index step = 1; step < x.rows(); step *= 2) {
    const Eigen::Index n = x.rows() - step;
    x.bottomRows(n) += Sums(x.topRows(n));
    x.bottomRows(n) = rounder.sum(x.bottomRows(n));
  }
  return x;
}

Sums sums_in_sequence(Sums x, Rounder& rounder) {
  for (Eigen::Index i = 1; i < x.rows(); ++i) {
    x.row(i) += x.row(i - 1);
    x.row(i) = rounder.sum(x.row(i));
  }
  return x;
}

Sums plain_sums(Sums x) {
  for (Eigen::Index i = 1; i < x.rows(); ++i) x.row(i) += x.row(i - 1);
  return x;
}

// What a random run makes of the sums, and of what `d` has for alpha.
void take_sums(const Floats& log_alpha, Rounder& rounder, ChunkDecay& d) {
  const Sums summands = log_alpha.cast<double>();
  const Sums tree = sums_in_a_tree(summands, rounder);
  d.G = sums_in_sequence(summands, rounder) + (tree - plain_sums(summands));
  for (Eigen::Index i = 1; i < d.G.rows(); ++i) {
    const Floats decay = (d.G.row(i) - d.G.row(i - 1)).cast<float>().array().exp();
    for (Eigen::Index x = 0; x < decay.size(); ++x) {
      if (d.alpha(i, x) > 0.0F) d.alpha(i, x) = decay(0, x);
    }
  }
}

}  // namespace

ChunkDecay chunk_decay(const Floats& alpha, const Floats& log_alpha, Rounder& rounder) {
  const Eigen::Index n = log_alpha.rows();
  ChunkDecay d;
  d.alpha = alpha;
  if (rounder.is_random()) {
    take_sums(log_alpha, rounder, d);
  } else {
    Floats sums = log_alpha;
    for (Eigen::Index i = 1; i < n; ++i) sums.row(i) += sums.row(i - 1);
    d.G = sums.cast<double>();
  }
  d.start = d.G.cast<float>().array().exp();
  d.whole = d.start.bottomRows(1);
  d.end = folded(d.G, 0, n, n - 1, false);
  if (!d.is_scalar()) return d;
  d.between = Floats::Zero(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j)
      d.between(i, j) = std::exp(static_cast<float>(d.G(i, 0) - d.G(j, 0)));
  }
  return d;
}

Floats scaled(const Floats& x, const Floats& by) {
  if (by.cols() == 1) return x.array().colwise() * by.col(0).array();
  return x.array() * by.array();
}

Floats pair_products(const ChunkDecay& decay, const Floats& left, const Floats& right) {
  const Eigen::Index n = left.rows();
  if (decay.is_scalar()) {
    Floats S = product_transposed(left, right);
    return S.array() * decay.between.array();
  }
  Floats S = Floats::Zero(n, n);
  for (Eigen::Index first = 0; first < n; first += kBlock) {
    const Eigen::Index rows = std::min(kBlock, n - first);
    if (first > 0) {
      const Floats l =
          left.middleRows(first, rows).array() * folded(decay.G, first, rows, first, true).array();
      const Floats r =
          right.topRows(first).array() * folded(decay.G, 0, first, first, false).array();
      S.block(first, 0, rows, first) = product_transposed(l, r);
    }
    scalar::decayed_products({decay.alpha.data(), first, first + rows, left.cols()}, left.data(),
                             right.data(), S.data(), n);
  }
  return S;
}

namespace {

struct Block {
  Eigen::Index first, rows;
};

// The pairs of a diagonal block, each side by a product of its own: decays from the row in the
// middle are folded into both factors of a pair.
void add_two_products(const Block& block, const ChunkDecay& decay, const Floats& M,
                      const Floats& left, const Floats& right, Rounder& rounder, PairSums& sums) {
  const auto [first, rows] = block;
  const auto operand = [&](Floats x) {
    return rounder.rounded(contract::AdjointPoint::kPairDiagonal, std::move(x));
  };
  const Eigen::Index middle = first + std::min(kBlock / 2, rows - 1);
  const Floats from = folded(decay.G, first, rows, middle, true);
  const Floats to = folded(decay.G, first, rows, middle, false);
  const Floats factors = operand(M.block(first, first, rows, rows));
  const Floats y = product(factors, operand(right.middleRows(first, rows).array() * to.array()));
  const Floats z =
      transposed_product(factors, operand(left.middleRows(first, rows).array() * from.array()));
  sums.y.middleRows(first, rows) += Floats(y.array() * from.array());
  sums.z.middleRows(first, rows) += Floats(z.array() * to.array());
}

}  // namespace

PairSums pair_sums(const ChunkDecay& decay, const Floats& M, const LeftRows& left,
                   const Floats& right, Rounder& rounder) {
  using contract::AdjointPoint;
  if (decay.is_scalar()) return {product(M, right), transposed_product(M, left.of_products)};
  const Eigen::Index n = right.rows();
  const Eigen::Index K = right.cols();
  PairSums sums{Floats::Zero(n, K), Floats::Zero(n, K)};
  const auto operand = [&](Floats x) { return rounder.rounded(AdjointPoint::kPair, std::move(x)); };
  for (Eigen::Index first = 0; first < n; first += kBlock) {
    const Eigen::Index rows = std::min(kBlock, n - first);
    const Eigen::Index behind = first + rows;
    if (first > 0) {
      const Floats r =
          right.topRows(first).array() * folded(decay.G, 0, first, first, false).array();
      const Floats y = product(operand(M.block(first, 0, rows, first)), operand(r));
      sums.y.middleRows(first, rows) +=
          Floats(y.array() * folded(decay.G, first, rows, first, true).array());
    }
    if (behind < n) {
      const Floats l = left.of_products.bottomRows(n - behind).array() *
                       folded(decay.G, behind, n - behind, behind - 1, true).array();
      const Floats z =
          transposed_product(operand(M.block(behind, first, n - behind, rows)), operand(l));
      sums.z.middleRows(first, rows) +=
          Floats(z.array() * folded(decay.G, first, rows, behind - 1, false).array());
    }
    if (rounder.rounds(AdjointPoint::kPairDiagonal)) {
      add_two_products({first, rows}, decay, M, left.of_products, right, rounder, sums);
    } else {
      scalar::decayed_sums({decay.alpha.data(), first, behind, K}, M.data(), n, left.exact.data(),
                           right.data(), sums.y.data(), sums.z.data());
    }
  }
  return sums;
}

}  // namespace goldenrule::backward
