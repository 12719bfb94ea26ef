// SPDX-License-Identifier: Apache-2.0
//
// How far each form may be from the exact map of its lane (whose k^, q^, alpha, beta are taken as
// they are), by first-order rounding error analysis with the computed quantities; u is the unit
// roundoff of the tier and g(m) = m u / (1 - m u). Norms are over the K axis; |..| of a matrix is
// taken element by element. phi a is the growth of one exact step (certificate.hpp): errors are
// transported by exact maps, so only the local ones are bounded here.
//
// Recurrent form: the certificate with an exact lane.
//
// Closed form. Row r of norm rho, with error eps: per token, backwards,
//   |dM|  <= beta ||k|| (eps + (g(K) + u) rho)
//   eps   <- phi a eps + a (beta ||k||^2 (g(K) + 2u) + 2u phi) rho,        rho <- phi a rho
//   |do|  <= sum_j |dM_j| |v_j| + eps ||S_0|| + g(n + K + 1) (sum_j beta ||k_j|| rho_j |v_j|
//            + rho ||S_0||).
//
// Chunk form, c tokens, P_ij >= D_ij and E_i, F_j from alpha_max:
//   |dA_ij| <= g(K + c + 3) beta_i ||k_i|| ||k_j|| P_ij             (products of c + 3 roundings)
//   |dT|    <= |T| (g(c) |A| + |dA|) |T|     forward substitution leaves T + A T - I <= g(c)|A||T|,
//                                            N. J. Higham, Accuracy and Stability, section 14.2
//   |dw_i|  <= sum_l (|dT_il| + g(2c + 3) |T_il|) beta_l ||k_l|| E_l
//   |du_i|  <= sum_l (|dT_il| + g(c + 2) |T_il|) beta_l |v_l|
//   |dv'|   <= |du| + (|dw_i| + g(K + 1) ||w_i||) ||S|| + u |v'|
//   |do_i|  <= g(K + c + 2) ||q_i|| E_i ||S|| + u |o_i|
//              + sum_j ||q_i|| ||k_j|| P_ij (g(K + 2c + 4) |v'_j| + |dv'_j|)
//   ||dS||  <= g(c + 2) E_c ||S|| + sum_j F_j ||k_j|| (g(2c + 1) |v'_j| + |dv'_j|) + u ||S'||.
//
// The factor 1 + 2^-6 covers products of two small numbers and the arithmetic of the bounds.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta::test {

/// Bounds of o [tokens,V] and of the state [K,V], per element.
struct FormBound {
  Matrix<double> o, state;
};

inline constexpr double kHigherOrder = 1.0 + 0x1p-6;

template <class S>
double g(std::int64_t m) {
  const double mu = static_cast<double>(m) * scalar::Tier<S>::kUnitRoundoff;
  return mu / (1.0 - mu);
}

/// Underflow of intermediate products, each at most once per operation on a result.
template <class S>
double underflow_term(const Lane<S>& lane, const Matrix<double>& v, const Matrix<double>& initial) {
  double size = 1.0 + v.cwiseAbs().sum() + initial.cwiseAbs().sum();
  for (const TokenBounds& b : lane.bounds) size += b.q_norm + b.k_norm + b.beta;
  return scalar::Tier<S>::kUnderflow * std::pow(size, 3) *
         static_cast<double>((lane.tokens + lane.K) * lane.K);
}

/// The lane as the exact input of a form.
template <class S>
Lane<S> taken_as_exact(Lane<S> lane) {
  lane.k_error = lane.q_error = 0.0;
  for (TokenBounds& b : lane.bounds) b.alpha_error = b.beta_error = 0.0;
  return lane;
}

template <class S>
FormBound recurrent_bound(const Lane<S>& lane, const Matrix<double>& v,
                          const Matrix<double>& initial) {
  const Lane<S> exact = taken_as_exact(lane);
  const std::int64_t V = v.cols();
  FormBound bound{Matrix<double>(lane.tokens, V), Matrix<double>(lane.K, V)};
  for (std::int64_t first = 0; first < V; first += kTileColumns<S>) {
    const auto columns = static_cast<int>(std::min<std::int64_t>(kTileColumns<S>, V - first));
    RecurrentTile<S> tile(exact, v.data(), V, first, columns);
    typename ColumnNorms<S>::Row norm2{};
    for (int c = 0; c < columns; ++c) {
      norm2[static_cast<std::size_t>(c)] = initial.col(first + c).squaredNorm();
      for (std::int64_t i = 0; i < lane.K; ++i) tile.set_state(i, c, S(initial(i, first + c)));
    }
    delta::Certificate<S> certificate(exact, norm2);
    tile.advance(0, lane.tokens, Detail::kNorms);
    for (std::int64_t t = 0; t < lane.tokens; ++t) {
      certificate.advance(t, tile.norms()[static_cast<std::size_t>(t)]);
      for (int c = 0; c < columns; ++c) bound.o(t, first + c) = certificate.output_radius(c);
    }
    for (int c = 0; c < columns; ++c) {
      bound.state.col(first + c).setConstant(certificate.state_radius(c));
    }
  }
  return bound;
}

template <class S>
FormBound closed_bound(const Lane<S>& lane, const Matrix<double>& v,
                       const Matrix<double>& initial) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  const std::int64_t n = lane.tokens;
  const double tiny = underflow_term(lane, v, initial);
  // The error of a read-out that starts behind token `last` with a row of this norm.
  const auto read = [&](std::int64_t last, double norm) -> Matrix<double> {
    double rho = norm, eps = 0.0;
    Matrix<double> error = Matrix<double>::Constant(1, v.cols(), tiny);
    for (std::int64_t j = last; j >= 0; --j) {
      const TokenBounds& b = lane.bounds[static_cast<std::size_t>(j)];
      const double reach = b.beta * b.k_norm;
      const double weight = reach * (eps + (g<S>(lane.K) + u) * rho);
      error += v.row(j).cwiseAbs() * (weight + g<S>(n + lane.K + 1) * reach * rho);
      eps = b.alpha_max * (b.spectral * eps +
                           (reach * b.k_norm * (g<S>(lane.K) + 2 * u) + 2 * u * b.spectral) * rho);
      rho *= b.spectral * b.alpha_max;
    }
    error += initial.colwise().norm() * (eps + g<S>(n + lane.K + 1) * rho);
    return error * kHigherOrder;
  };
  FormBound bound{Matrix<double>(n, v.cols()), Matrix<double>(lane.K, v.cols())};
  for (std::int64_t t = 0; t < n; ++t) {
    bound.o.row(t) = read(t, lane.bounds[static_cast<std::size_t>(t)].q_norm);
  }
  bound.state.rowwise() = Eigen::RowVectorXd(read(n - 1, 1.0).row(0));
  return bound;
}

/// What the bound of one chunk takes from its tokens, in the letters of the formulas above.
struct ChunkFactors {
  Matrix<double> P;           ///< [c,c], lower triangle: the largest decay from token j to token i
  Eigen::VectorXd E;          ///< the largest decay from the start of the chunk
  Eigen::VectorXd transport;  ///< the growth of an error from there
  Eigen::VectorXd q, k;       ///< norms
  Eigen::VectorXd reach;      ///< beta ||k||

  explicit ChunkFactors(std::span<const TokenBounds> tokens)
      : P(Matrix<double>::Zero(std::ssize(tokens), std::ssize(tokens))),
        E(std::ssize(tokens)),
        transport(std::ssize(tokens)),
        q(std::ssize(tokens)),
        k(std::ssize(tokens)),
        reach(std::ssize(tokens)) {
    const std::int64_t c = std::ssize(tokens);
    for (std::int64_t j = 0; j < c; ++j) {
      const TokenBounds& token = tokens[static_cast<std::size_t>(j)];
      double product = 1.0;
      for (std::int64_t i = j; i < c; ++i) {
        if (i > j) product *= tokens[static_cast<std::size_t>(i)].alpha_max;
        P(i, j) = product;
      }
      E(j) = (j == 0 ? 1.0 : E(j - 1)) * token.alpha_max;
      transport(j) = (j == 0 ? 1.0 : transport(j - 1)) * token.alpha_max * token.spectral;
      q(j) = token.q_norm;
      k(j) = token.k_norm;
      reach(j) = token.beta * k(j);
    }
  }
};

/// `result` and `stages` are those of chunk_form<S> with chunks of C.
template <class S>
FormBound chunk_bound(const Lane<S>& lane, const Matrix<double>& v, const Matrix<double>& initial,
                      std::int64_t C, const FormResult<S>& result, const ChunkStages<S>& stages) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  const auto doubles = [](const auto& m) -> Matrix<double> {
    return m.unaryExpr([](const S& x) { return std::fabs(scalar::to_double(x)); });
  };
  const std::int64_t K = lane.K;
  const std::int64_t V = v.cols();
  const double tiny = underflow_term(lane, v, initial);
  FormBound bound{Matrix<double>(lane.tokens, V), Matrix<double>(K, V)};
  Eigen::RowVectorXd carried = Eigen::RowVectorXd::Zero(V);  // error norm of the state's columns
  for (std::int64_t first = 0, chunk = 0; first < lane.tokens; first += C, ++chunk) {
    const std::int64_t c = std::min(C, lane.tokens - first);
    const auto tokens = std::span<const TokenBounds>(lane.bounds)
                            .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(c));
    const ChunkFactors factors(tokens);
    const auto& [P, E, transport, q, k, reach] = factors;
    const Matrix<double> T = doubles(stages.T.block(first, 0, c, c));
    const Matrix<double> A = doubles(stages.A.block(first, 0, c, c));
    const Matrix<double> v_new = doubles(stages.v_new.middleRows(first, c));
    const Eigen::VectorXd w = doubles(stages.w.middleRows(first, c)).rowwise().norm();
    const Eigen::RowVectorXd S_norm =
        doubles(stages.h[static_cast<std::size_t>(chunk)]).colwise().norm();
    const bool is_last = first + c == lane.tokens;
    const Eigen::RowVectorXd S_next =
        doubles(is_last ? result.state : stages.h[static_cast<std::size_t>(chunk + 1)])
            .colwise()
            .norm();
    const Matrix<double> dA = (g<S>(K + c + 3) * reach * k.transpose())
                                  .cwiseProduct(P)
                                  .template triangularView<Eigen::StrictlyLower>();
    const Matrix<double> dT = T * (g<S>(c) * A + dA) * T;
    const Eigen::VectorXd dw = (dT + g<S>(2 * c + 3) * T) * reach.cwiseProduct(E);
    Matrix<double> beta_v = v.middleRows(first, c).cwiseAbs();
    for (std::int64_t i = 0; i < c; ++i) beta_v.row(i) *= tokens[static_cast<std::size_t>(i)].beta;
    const Matrix<double> dv = (dT + g<S>(c + 2) * T) * beta_v + (dw + g<S>(K + 1) * w) * S_norm +
                              u * v_new + Matrix<double>::Constant(c, V, tiny);
    const Matrix<double> QK =
        (q * k.transpose()).cwiseProduct(P).template triangularView<Eigen::Lower>();
    bound.o.middleRows(first, c) =
        (g<S>(K + c + 2) * q.cwiseProduct(E) * S_norm + u * doubles(result.o.middleRows(first, c)) +
         QK * (g<S>(K + 2 * c + 4) * v_new + dv) + q.cwiseProduct(transport) * carried) *
            kHigherOrder +
        Matrix<double>::Constant(c, V, tiny);
    const Eigen::RowVectorXd out = P.row(c - 1).cwiseProduct(k.transpose());
    const Eigen::RowVectorXd local =
        g<S>(c + 2) * E(c - 1) * S_norm + out * (g<S>(2 * c + 1) * v_new + dv) + u * S_next;
    carried =
        (transport(c - 1) * carried + local) * kHigherOrder + Eigen::RowVectorXd::Constant(V, tiny);
  }
  bound.state.rowwise() = carried;
  return bound;
}

}  // namespace goldenrule::delta::test
