// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/perturbed_recurrence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/delta/budget/noise_table.hpp"
#include "reference/scalar/pack.hpp"

namespace goldenrule::delta {
namespace {

using scalar::broadcast;
using scalar::kPackWidth;
using scalar::Pack;

// Columns that advance together: K = 128 states of 32 columns stay in the first-level cache.
constexpr int kPacks = 4;
constexpr int kColumns = kPacks * kPackWidth;
static_assert(kColumns <= kNoiseRun);

struct Tile {
  const Lane<double>* lane;
  const Matrix<double>* v;
  std::int64_t first;  // column
  int columns;
  double u;  // unit roundoff, 0: no roundings
  Pack* state;
  Matrix<double>* o;
};

// One of the errors that a whole sum or number takes, with the variance of `squares` roundings.
GOLDENRULE_INLINE double rounding(double u, double squares, double uniform) {
  return u * uniform * __builtin_sqrt(squares);
}

GOLDENRULE_INLINE Pack load(const double* p) {
  Pack x;
  std::memcpy(&x.v, p, sizeof x.v);
  return x;
}

GOLDENRULE_VECTOR_CLONES void run_tile(const Tile& tile, std::uint64_t start) {
  const Lane<double>& lane = *tile.lane;
  const std::int64_t K = lane.K;
  const auto n = static_cast<double>(K);
  const double* table = noise_table();
  const Pack u = broadcast(tile.u);
  const Pack one = broadcast(1.0);
  NoisePlaces places(start);
  alignas(64) double x[kColumns];
  alignas(64) double squares[kColumns];
  alignas(64) double d[kColumns];
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    const double* k = lane.k_row(t);
    const double* q = lane.q_row(t);
    Pack sum[kPacks];
    Pack sum2[kPacks];
    double kq = 0.0;
    double kq2 = 0.0;
    for (std::int64_t i = 0; i < K; ++i) {
      const auto at = places.three(table);
      const Pack a = broadcast(lane.alpha_at(t, i));
      const Pack ki = broadcast(k[i]);
      for (int w = 0; w < kPacks; ++w) {
        const Pack decayed =
            tile.state[i * kPacks + w] * a * (one + u * load(at[0] + w * kPackWidth));
        tile.state[i * kPacks + w] = decayed;
        const Pack product = decayed * ki;
        sum[w] += product;
        sum2[w] += product * product;
      }
      const double y = k[i] * q[i];
      kq += y;
      kq2 += y * y;
    }
    std::memcpy(x, sum, sizeof x);
    std::memcpy(squares, sum2, sizeof squares);
    const auto of_delta = places.three(table);
    const double beta = lane.beta[static_cast<std::size_t>(t)];
    for (int c = 0; c < kColumns; ++c) {
      const double p =
          x[c] + rounding(tile.u, n / 3 * x[c] * x[c] + (n / 6 + 2) * squares[c], of_delta[0][c]);
      const double v = c < tile.columns ? (*tile.v)(t, tile.first + c) : 0.0;
      // v - p and beta, each rounded, and d again as the factor of k d.
      d[c] = beta * (v - p) * (1.0 + tile.u * __builtin_sqrt(2.0) * of_delta[1][c]);
      sum[c / kPackWidth].set(c % kPackWidth, 0.0);
      sum2[c / kPackWidth].set(c % kPackWidth, 0.0);
    }
    Pack delta[kPacks];
    std::memcpy(delta, d, sizeof d);
    for (std::int64_t i = 0; i < K; ++i) {
      const auto at = places.three(table);
      const Pack ki = broadcast(k[i]);
      const Pack qi = broadcast(q[i]);
      for (int w = 0; w < kPacks; ++w) {
        // The product and the rounded k in it; then the sum.
        const Pack added =
            ki * delta[w] *
            (one + u * (load(at[0] + w * kPackWidth) + load(at[1] + w * kPackWidth)));
        const Pack z =
            (tile.state[i * kPacks + w] + added) * (one + u * load(at[2] + w * kPackWidth));
        tile.state[i * kPacks + w] = z;
        const Pack product = z * qi;
        sum[w] += product;
        sum2[w] += product * product;
      }
    }
    std::memcpy(x, sum, sizeof x);
    std::memcpy(squares, sum2, sizeof squares);
    const auto of_output = places.three(table);
    const double early = n / 3 * kq * kq + n / 6 * kq2 + 2 * kq * kq;
    for (int c = 0; c < tile.columns; ++c) {
      const double of_sum = n / 3 * x[c] * x[c] + (n / 6 + 2) * squares[c];
      (*tile.o)(t, tile.first + c) =
          x[c] + rounding(tile.u, of_sum + early * d[c] * d[c], of_output[0][c]);
    }
  }
}

}  // namespace

delta::FormResult<double> perturbed_recurrence(const Lane<double>& lane, const Matrix<double>& v,
                                               const Matrix<double>& initial,
                                               const contract::Contract& contract,
                                               const Perturbation& perturbation) {
  const Lane<double> moved = perturbed_lane(lane, contract, perturbation);
  FormResult<double> result{.o = Matrix<double>(lane.tokens, v.cols()), .state = initial};
  std::vector<Pack> state(static_cast<std::size_t>(lane.K * kPacks));
  for (std::int64_t first = 0; first < v.cols(); first += kColumns) {
    const auto columns = static_cast<int>(std::min<std::int64_t>(kColumns, v.cols() - first));
    for (std::int64_t i = 0; i < lane.K; ++i) {
      for (int c = 0; c < kColumns; ++c) {
        state[static_cast<std::size_t>(i * kPacks + c / kPackWidth)].set(
            c % kPackWidth, c < columns ? initial(i, first + c) : 0.0);
      }
    }
    const Tile tile{.lane = &moved,
                    .v = &v,
                    .first = first,
                    .columns = columns,
                    .u = perturbation.random ? contract.unit_roundoff : 0.0,
                    .state = state.data(),
                    .o = &result.o};
    const random::Stream places(perturbation.seed, "places");
    run_tile(tile, places.bits(static_cast<std::int64_t>(perturbation.stream) * v.cols() + first));
    for (std::int64_t i = 0; i < lane.K; ++i) {
      for (int c = 0; c < columns; ++c) {
        result.state(i, first + c) =
            state[static_cast<std::size_t>(i * kPacks + c / kPackWidth)][c % kPackWidth];
      }
    }
  }
  return result;
}

}  // namespace goldenrule::delta
