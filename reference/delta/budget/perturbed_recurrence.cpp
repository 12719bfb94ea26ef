// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/perturbed_recurrence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/delta/emulation/noise_table.hpp"
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
  double u;                      // unit roundoff, 0: no roundings
  std::uint64_t start;           // of the noise of this run
  const std::uint64_t* content;  // of each token
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

// Sums over the K channels of a token, per column.
struct Sums {
  Pack value[kPacks], squares[kPacks];

  // f(column, sum, sum of squares)
  template <class F>
  GOLDENRULE_INLINE void for_each(int columns, F&& f) const {
    alignas(64) double x[kColumns];
    alignas(64) double x2[kColumns];
    std::memcpy(x, value, sizeof x);
    std::memcpy(x2, squares, sizeof x2);
    for (int c = 0; c < columns; ++c) f(c, x[c], x2[c]);
  }
};

// Decays the state of the tile with rounded products; p = S'^T k^.
GOLDENRULE_INLINE Sums decay(const Tile& tile, std::int64_t t, const double* table,
                             NoisePlaces& places) {
  const Lane<double>& lane = *tile.lane;
  const double* k = lane.k_row(t);
  const Pack u = broadcast(tile.u);
  const Pack one = broadcast(1.0);
  Sums sum{};
  for (std::int64_t i = 0; i < lane.K; ++i) {
    const auto at = places.three(table);
    const Pack a = broadcast(lane.alpha_at(t, i));
    const Pack ki = broadcast(k[i]);
    for (int w = 0; w < kPacks; ++w) {
      const Pack decayed =
          tile.state[i * kPacks + w] * a * (one + u * load(at[0] + w * kPackWidth));
      tile.state[i * kPacks + w] = decayed;
      const Pack product = decayed * ki;
      sum.value[w] += product;
      sum.squares[w] += product * product;
    }
  }
  return sum;
}

// Adds k^ d^T, rounded, to the state; o.
GOLDENRULE_INLINE Sums update(const Tile& tile, std::int64_t t, const double* d,
                              const double* table, NoisePlaces& places) {
  const Lane<double>& lane = *tile.lane;
  const double* k = lane.k_row(t);
  const double* q = lane.q_row(t);
  const Pack u = broadcast(tile.u);
  const Pack one = broadcast(1.0);
  Pack delta[kPacks];
  for (int w = 0; w < kPacks; ++w) delta[w] = load(d + w * kPackWidth);
  Sums sum{};
  for (std::int64_t i = 0; i < lane.K; ++i) {
    const auto at = places.three(table);
    const Pack ki = broadcast(k[i]);
    const Pack qi = broadcast(q[i]);
    for (int w = 0; w < kPacks; ++w) {
      // The product and the rounded k in it; then the sum.
      const Pack added =
          ki * delta[w] * (one + u * (load(at[0] + w * kPackWidth) + load(at[1] + w * kPackWidth)));
      const Pack z =
          (tile.state[i * kPacks + w] + added) * (one + u * load(at[2] + w * kPackWidth));
      tile.state[i * kPacks + w] = z;
      const Pack product = z * qi;
      sum.value[w] += product;
      sum.squares[w] += product * product;
    }
  }
  return sum;
}

// Tokens [begin, end).
GOLDENRULE_VECTOR_CLONES void run_tile(const Tile& tile, std::int64_t begin, std::int64_t end) {
  const Lane<double>& lane = *tile.lane;
  const auto n = static_cast<double>(lane.K);
  const double* table = noise_table();
  alignas(64) double d[kColumns];
  for (std::int64_t t = begin; t < end; ++t) {
    NoisePlaces places(tile.start ^ tile.content[t]);
    const Sums predicted = decay(tile, t, table, places);
    const auto of_delta = places.three(table);
    const double beta = lane.beta[static_cast<std::size_t>(t)];
    predicted.for_each(kColumns, [&](int c, double x, double squares) {
      const double p = x + rounding(tile.u, n / 3 * x * x + (n / 6 + 2) * squares, of_delta[0][c]);
      const double v = c < tile.columns ? (*tile.v)(t, tile.first + c) : 0.0;
      // v - p and beta, each rounded, and d again as the factor of k d.
      d[c] = (t < lane.given ? v : beta * (v - p)) *
             (1.0 + tile.u * __builtin_sqrt(2.0) * of_delta[1][c]);
    });
    const Sums output = update(tile, t, d, table, places);
    const auto of_output = places.three(table);
    double kq = 0.0;
    double kq2 = 0.0;
    for (std::int64_t i = 0; i < lane.K; ++i) {
      const double y = lane.k_row(t)[i] * lane.q_row(t)[i];
      kq += y;
      kq2 += y * y;
    }
    const double early = n / 3 * kq * kq + n / 6 * kq2 + 2 * kq * kq;
    output.for_each(tile.columns, [&](int c, double x, double squares) {
      const double of_sum = n / 3 * x * x + (n / 6 + 2) * squares;
      (*tile.o)(t, tile.first + c) =
          x + rounding(tile.u, of_sum + early * d[c] * d[c], of_output[0][c]);
    });
  }
}

// The columns of the tile.
void copy_state(const Tile& tile, Matrix<double>& to) {
  for (std::int64_t i = 0; i < to.rows(); ++i) {
    for (int c = 0; c < tile.columns; ++c) {
      to(i, tile.first + c) = tile.state[i * kPacks + c / kPackWidth][c % kPackWidth];
    }
  }
}

}  // namespace

delta::KeptForm<double> perturbed_recurrence(const Lane<double>& lane, const Matrix<double>& v,
                                             const Matrix<double>& initial,
                                             std::span<const std::int64_t> positions,
                                             const contract::Contract& contract,
                                             const Perturbation& perturbation,
                                             std::span<const std::uint64_t> content) {
  const Lane<double> moved = perturbed_lane(lane, contract, perturbation);
  KeptForm<double> result{.o = Matrix<double>(lane.tokens, v.cols()),
                          .states = {positions.size(), initial}};
  std::vector<Pack> state(static_cast<std::size_t>(lane.K * kPacks));
  const random::Stream starts(perturbation.seed, "places");
  for (std::int64_t first = 0; first < v.cols(); first += kColumns) {
    const auto columns = static_cast<int>(std::min<std::int64_t>(kColumns, v.cols() - first));
    for (std::int64_t i = 0; i < lane.K; ++i) {
      for (int c = 0; c < kColumns; ++c) {
        state[static_cast<std::size_t>(i * kPacks + c / kPackWidth)].set(
            c % kPackWidth, c < columns ? initial(i, first + c) : 0.0);
      }
    }
    const Tile tile{
        .lane = &moved,
        .v = &v,
        .first = first,
        .columns = columns,
        .u = perturbation.random ? contract.unit_roundoff() : 0.0,
        .start = starts.bits(static_cast<std::int64_t>(perturbation.stream) * v.cols() + first),
        .content = content.data(),
        .state = state.data(),
        .o = &result.o};
    std::int64_t begin = 0;
    for (std::size_t n = 0; n < positions.size(); ++n) {
      run_tile(tile, begin, positions[n]);
      begin = positions[n];
      copy_state(tile, result.states[n]);
    }
    run_tile(tile, begin, lane.tokens);
  }
  return result;
}

}  // namespace goldenrule::delta
