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
// Chunk form: the stages, v_new among them as v', by oracle/chunk_certificate.hpp with an exact
// lane, and of what is read from them, QK_ij = ||q_i|| ||k_j|| P_ij,
//   |do_i|  <= g(K + c + 2) ||q_i|| E_i ||S|| + u |o_i| + sum_j QK_ij (g(K + 2c + 4) |v'_j| +
//   |dv'_j|)
//              + the errors of the states before, transported.
//
// The factor 1 + 2^-6 covers products of two small numbers and the arithmetic of the bounds.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/oracle/chunk_certificate.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta::test {

/// Bounds of o [tokens,V] and of the state [K,V], per element.
struct FormBound {
  Matrix<double> o, state;
};

template <class S>
double g(std::int64_t m) {
  return rounding_growth<S>(m);
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
  const ChunkErrors errors = chunk_errors(taken_as_exact(lane), v, initial, C, result, stages);
  FormBound bound{Matrix<double>(lane.tokens, V), Matrix<double>(K, V)};
  for (std::int64_t first = 0, chunk = 0; first < lane.tokens; first += C, ++chunk) {
    const std::int64_t c = std::min(C, lane.tokens - first);
    const ChunkFactors factors(
        std::span<const TokenBounds>(lane.bounds)
            .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(c)));
    const Matrix<double> v_new = doubles(stages.v_new.middleRows(first, c));
    const Eigen::RowVectorXd S_norm =
        doubles(stages.h[static_cast<std::size_t>(chunk)]).colwise().norm();
    const Matrix<double> QK = (factors.q * factors.k.transpose())
                                  .cwiseProduct(factors.P)
                                  .template triangularView<Eigen::Lower>();
    bound.o.middleRows(first, c) =
        (g<S>(K + c + 2) * factors.q.cwiseProduct(factors.E) * S_norm +
         u * doubles(result.o.middleRows(first, c)) +
         QK * (g<S>(K + 2 * c + 4) * v_new + errors.corrections.middleRows(first, c)) +
         factors.q.cwiseProduct(factors.transport) * errors.h[static_cast<std::size_t>(chunk)]) *
            kHigherOrder +
        Matrix<double>::Constant(c, V, tiny);
  }
  bound.state.rowwise() = errors.state;
  return bound;
}

}  // namespace goldenrule::delta::test
