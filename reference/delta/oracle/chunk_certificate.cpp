// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/chunk_certificate.hpp"

#include <algorithm>
#include <cmath>

namespace goldenrule::delta {
namespace {

template <class S>
Matrix<double> sizes(const Matrix<S>& m) {
  return m.unaryExpr([](const S& x) { return std::fabs(scalar::to_double(x)); });
}

// Sums of log alpha of one chunk, to bounds.G.
template <class S>
void bound_gates(const Lane<S>& lane, std::int64_t first, std::int64_t c, Matrix<double>& G) {
  for (std::int64_t g = 0; g < lane.gates; ++g) {
    double error = 0.0;
    double size = 0.0;
    for (std::int64_t i = 0; i < c; ++i) {
      const TokenBounds& b = lane.bounds[static_cast<std::size_t>(first + i)];
      const auto at = static_cast<std::size_t>((first + i) * lane.gates + g);
      const double log_alpha = std::fabs(lane.log_alpha[at]);
      // log_alpha_error is that of the rule. What is left: its rounding to double, or where it is
      // the logarithm of an alpha of a wider tier that of alpha; and that of the sum.
      error += b.log_alpha_error + 0x1p-51 * log_alpha + 0x1p-98;
      size += log_alpha;
      G(first + i, g) = (error + rounding_growth<double>(i + 1) * size) * kHigherOrder;
    }
  }
}

template <class S>
ChunkErrors no_errors(const Lane<S>& lane, std::int64_t V, std::int64_t C) {
  return {.G = Matrix<double>(lane.tokens, lane.gates),
          .A = Matrix<double>::Zero(lane.tokens, C),
          .T = Matrix<double>::Zero(lane.tokens, C),
          .w = Eigen::VectorXd(lane.tokens),
          .u = Matrix<double>(lane.tokens, V),
          .v_new = Matrix<double>(lane.tokens, V),
          .h = {},
          .state = Eigen::RowVectorXd::Zero(V),
          .corrections = Matrix<double>(lane.tokens, V)};
}

}  // namespace

ChunkFactors::ChunkFactors(std::span<const TokenBounds> tokens)
    : P(Matrix<double>::Zero(std::ssize(tokens), std::ssize(tokens))),
      dP(P),
      E(std::ssize(tokens)),
      dE(std::ssize(tokens)),
      transport(std::ssize(tokens)),
      q(std::ssize(tokens)),
      k(std::ssize(tokens)),
      reach(std::ssize(tokens)) {
  const std::int64_t c = std::ssize(tokens);
  for (std::int64_t j = 0; j < c; ++j) {
    const TokenBounds& token = tokens[static_cast<std::size_t>(j)];
    double product = 1.0;
    double error = 0.0;
    for (std::int64_t i = j; i < c; ++i) {
      const TokenBounds& b = tokens[static_cast<std::size_t>(i)];
      if (i > j) {
        error = error * b.alpha_max + product * b.alpha_error;
        product *= b.alpha_max;
      }
      P(i, j) = product;
      dP(i, j) = error;
    }
    const double before = j == 0 ? 1.0 : E(j - 1);
    dE(j) = (j == 0 ? 0.0 : dE(j - 1)) * token.alpha_max + before * token.alpha_error;
    E(j) = before * token.alpha_max;
    transport(j) = (j == 0 ? 1.0 : transport(j - 1)) * token.alpha_max * token.spectral;
    q(j) = token.q_norm;
    k(j) = token.k_norm;
    reach(j) = token.beta * k(j);
  }
}

template <class S>
double underflow_term(const Lane<S>& lane, const Matrix<double>& v, const Matrix<double>& initial) {
  // What is not finite reaches nothing whose error is asked for.
  const auto sum = [](const Matrix<double>& x) {
    return x.cwiseAbs().unaryExpr([](double y) { return std::isfinite(y) ? y : 0.0; }).sum();
  };
  double size = 1.0 + sum(v) + sum(initial);
  for (const TokenBounds& b : lane.bounds) {
    const double norms = b.q_norm + b.k_norm + b.beta;
    if (std::isfinite(norms)) size += norms;
  }
  return scalar::Tier<S>::kUnderflow * std::pow(size, 3) *
         static_cast<double>((lane.tokens + lane.K) * lane.K);
}

template <class S>
ChunkErrors chunk_errors(const Lane<S>& lane, const Matrix<double>& v,
                         const Matrix<double>& initial, std::int64_t C, const FormResult<S>& result,
                         const ChunkStages<S>& stages) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  const auto g = [](std::int64_t m) { return rounding_growth<S>(m); };
  const std::int64_t K = lane.K;
  const std::int64_t V = v.cols();
  const double tiny = underflow_term(lane, v, initial);
  ChunkErrors bound = no_errors(lane, V, C);
  Eigen::RowVectorXd& carried = bound.state;  // error norm of the state's columns
  for (std::int64_t first = 0, chunk = 0; first < lane.tokens; first += C, ++chunk) {
    const std::int64_t c = std::min(C, lane.tokens - first);
    const auto tokens = std::span<const TokenBounds>(lane.bounds)
                            .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(c));
    const ChunkFactors f(tokens);
    double e_b = 0.0;
    for (const TokenBounds& b : tokens) e_b = std::max(e_b, b.beta_error);
    const double e_k = lane.k_error;
    bound_gates(lane, first, c, bound.G);
    const Matrix<double> T = sizes<S>(stages.T.block(first, 0, c, c));
    const Matrix<double> A = sizes<S>(stages.A.block(first, 0, c, c));
    const Matrix<double> v_new = sizes<S>(stages.v_new.middleRows(first, c));
    const Eigen::VectorXd w = sizes<S>(stages.w.middleRows(first, c)).rowwise().norm();
    const Eigen::RowVectorXd S_norm =
        sizes(stages.h[static_cast<std::size_t>(chunk)]).colwise().norm();
    const bool is_last = first + c == lane.tokens;
    const Eigen::RowVectorXd S_next =
        sizes(is_last ? result.state : stages.h[static_cast<std::size_t>(chunk + 1)])
            .colwise()
            .norm();
    const Matrix<double> dA = (f.reach * f.k.transpose())
                                  .cwiseProduct((g(K + c + 3) + 2 * e_k + e_b) * f.P + f.dP)
                                  .template triangularView<Eigen::StrictlyLower>();
    const Matrix<double> dT = T * (g(c) * A + dA) * T;
    const Eigen::VectorXd dw = dT * f.reach.cwiseProduct(f.E) +
                               T * f.reach.cwiseProduct((g(2 * c + 3) + e_k + e_b) * f.E + f.dE);
    Matrix<double> beta_v = v.middleRows(first, c).cwiseAbs();
    for (std::int64_t i = 0; i < c; ++i) beta_v.row(i) *= tokens[static_cast<std::size_t>(i)].beta;
    const Matrix<double> floor = Matrix<double>::Constant(c, V, tiny);
    const Matrix<double> du = (dT + (g(c + 2) + e_b) * T) * beta_v;
    const Matrix<double> dv = du + (dw + g(K + 1) * w) * S_norm + u * v_new + floor;
    bound.A.block(first, 0, c, c) = dA * kHigherOrder + Matrix<double>::Constant(c, c, tiny);
    bound.T.block(first, 0, c, c) = dT * kHigherOrder + Matrix<double>::Constant(c, c, tiny);
    bound.w.segment(first, c) = dw * kHigherOrder + Eigen::VectorXd::Constant(c, tiny);
    bound.u.middleRows(first, c) = du * kHigherOrder + floor;
    bound.corrections.middleRows(first, c) = dv;
    bound.v_new.middleRows(first, c) = (dv + (w + dw) * carried) * kHigherOrder;
    bound.h.push_back(carried);
    const Eigen::RowVectorXd F = f.P.row(c - 1);
    const Eigen::RowVectorXd dF = f.dP.row(c - 1);
    const Eigen::RowVectorXd k = f.k.transpose();
    const Eigen::RowVectorXd written = k.cwiseProduct((g(2 * c + 1) + e_k) * F + dF);
    const Eigen::RowVectorXd local = (g(c + 2) * f.E(c - 1) + f.dE(c - 1)) * S_norm +
                                     written * v_new + k.cwiseProduct(F) * dv + u * S_next;
    carried = (f.transport(c - 1) * carried + local) * kHigherOrder +
              Eigen::RowVectorXd::Constant(V, tiny);
  }
  return bound;
}

#define GOLDENRULE_INSTANTIATE(S)                                                                 \
  template ChunkErrors chunk_errors(const Lane<S>&, const Matrix<double>&, const Matrix<double>&, \
                                    std::int64_t, const FormResult<S>&, const ChunkStages<S>&);   \
  template double underflow_term(const Lane<S>&, const Matrix<double>&, const Matrix<double>&);
GOLDENRULE_INSTANTIATE(double)
GOLDENRULE_INSTANTIATE(scalar::Quad)
GOLDENRULE_INSTANTIATE(scalar::Multi)
#undef GOLDENRULE_INSTANTIATE

}  // namespace goldenrule::delta
