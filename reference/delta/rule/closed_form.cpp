// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/rule/forms.hpp"
#include "reference/delta/rule/recurrent.hpp"
#include "reference/delta/rule/widen.hpp"

namespace goldenrule::delta {
namespace {

// Follows row `r` of a read-out after token `last` back to the start: fills M's row and leaves the
// weights of the initial state in r.
template <class S, class Row>
void read_backwards(const Lane<S>& lane, std::int64_t last, std::vector<S>& r, Row&& weights) {
  for (std::int64_t j = last; j >= 0; --j) {
    const S* k = lane.k_row(j);
    S dot(0);
    for (std::int64_t x = 0; x < lane.K; ++x) dot += r[static_cast<std::size_t>(x)] * k[x];
    const S weight = lane.beta[static_cast<std::size_t>(j)] * dot;
    weights(j) = weight;
    for (std::int64_t x = 0; x < lane.K; ++x) {
      S& y = r[static_cast<std::size_t>(x)];
      y = lane.alpha_at(j, x) * (y - weight * k[x]);
    }
  }
}

}  // namespace

template <class S>
FormResult<S> closed_form(const Lane<S>& lane, const Matrix<double>& v,
                          const Matrix<double>& initial) {
  const std::int64_t n = lane.tokens;
  const std::int64_t K = lane.K;
  // Rows 0 .. n-1 read o, rows n .. n+K-1 read the final state.
  Matrix<S> M = Matrix<S>::Constant(n + K, n, S(0));
  Matrix<S> R(n + K, K);
  for (std::int64_t row = 0; row < n + K; ++row) {
    std::vector<S> r(static_cast<std::size_t>(K), S(0));
    if (row < n) {
      std::copy_n(lane.q_row(row), K, r.begin());
    } else {
      r[static_cast<std::size_t>(row - n)] = S(1);
    }
    read_backwards(lane, std::min(row, n - 1), r, M.row(row));
    for (std::int64_t x = 0; x < K; ++x) R(row, x) = r[static_cast<std::size_t>(x)];
  }
  const Matrix<S> read = M * widen<S>(v) + R * widen<S>(initial);
  return {.o = read.topRows(n), .state = read.bottomRows(K)};
}

template <class S>
FormResult<S> recurrent_form(const Lane<S>& lane, const Matrix<double>& v,
                             const Matrix<double>& initial) {
  const std::int64_t V = v.cols();
  FormResult<S> result{.o = Matrix<S>(lane.tokens, V), .state = Matrix<S>(lane.K, V)};
  for (std::int64_t first = 0; first < V; first += kTileColumns<S>) {
    const auto columns = static_cast<int>(std::min<std::int64_t>(kTileColumns<S>, V - first));
    RecurrentTile<S> tile(lane, v.data(), V, first, columns);
    for (std::int64_t i = 0; i < lane.K; ++i) {
      for (int c = 0; c < columns; ++c) tile.set_state(i, c, S(initial(i, first + c)));
    }
    tile.advance(0, lane.tokens, Detail::kValues);
    for (int c = 0; c < columns; ++c) {
      for (std::int64_t t = 0; t < lane.tokens; ++t) result.o(t, first + c) = tile.output(t, c);
      for (std::int64_t i = 0; i < lane.K; ++i) result.state(i, first + c) = tile.state(i, c);
    }
  }
  return result;
}

#define GOLDENRULE_INSTANTIATE(S)                                              \
  template FormResult<S> closed_form(const Lane<S>&, const Matrix<double>&,    \
                                     const Matrix<double>&);                   \
  template FormResult<S> recurrent_form(const Lane<S>&, const Matrix<double>&, \
                                        const Matrix<double>&);
GOLDENRULE_INSTANTIATE(double)
GOLDENRULE_INSTANTIATE(scalar::Quad)
GOLDENRULE_INSTANTIATE(scalar::Multi)
#undef GOLDENRULE_INSTANTIATE

}  // namespace goldenrule::delta
