// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/nearest_recurrence.hpp"

#include <algorithm>
#include <vector>

#include "reference/scalar/pack.hpp"

namespace goldenrule::delta {
namespace {

// What one token brings, in fp32; rows have `width` columns.
struct Token {
  std::int64_t K, width, gates;
  const float *q, *k, *alpha, *v;
  float beta;
  bool given;  // v is the correction itself
};

// `row` is room for one row; o gets the output.
GOLDENRULE_VECTOR_CLONES void step(const Token& t, float* state, float* row, float* o) {
  std::fill_n(row, t.width, 0.0F);
  for (std::int64_t i = 0; i < t.K; ++i) {
    const float alpha = t.alpha[t.gates == 1 ? 0 : i];
    float* s = state + i * t.width;
    for (std::int64_t x = 0; x < t.width; ++x) {
      s[x] *= alpha;
      row[x] += s[x] * t.k[i];
    }
  }
  for (std::int64_t x = 0; x < t.width; ++x) {
    row[x] = t.given ? t.v[x] : t.beta * (t.v[x] - row[x]);
  }
  std::fill_n(o, t.width, 0.0F);
  for (std::int64_t i = 0; i < t.K; ++i) {
    float* s = state + i * t.width;
    for (std::int64_t x = 0; x < t.width; ++x) {
      s[x] += t.k[i] * row[x];
      o[x] += s[x] * t.q[i];
    }
  }
}

std::vector<float> rounded(const std::vector<double>& x, const contract::Rounding& format) {
  std::vector<float> y(x.size());
  std::ranges::transform(x, y.begin(), [&](double number) {
    return static_cast<float>(format ? round_to(*format, number) : number);
  });
  return y;
}

}  // namespace

KeptForm<double> nearest_recurrence(const Lane<double>& lane, const Matrix<double>& v,
                                    const Matrix<double>& initial,
                                    std::span<const std::int64_t> positions,
                                    const contract::Contract& contract) {
  const auto q = rounded(lane.q, contract.at(contract::Activation::kQuery));
  const auto k = rounded(lane.k, contract.at(contract::Activation::kKey));
  const auto alpha = rounded(lane.alpha, {});
  const auto beta = rounded(lane.beta, {});
  const Matrix<float> values = v.cast<float>();
  Matrix<float> state = initial.cast<float>();
  Matrix<float> o(v.rows(), v.cols());
  std::vector<float> row(static_cast<std::size_t>(v.cols()));
  KeptForm<double> result{.o = {}, .states = {}};
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    const Token token{.K = lane.K,
                      .width = v.cols(),
                      .gates = lane.gates,
                      .q = q.data() + t * lane.K,
                      .k = k.data() + t * lane.K,
                      .alpha = alpha.data() + t * lane.gates,
                      .v = values.data() + t * v.cols(),
                      .beta = beta[static_cast<std::size_t>(t)],
                      .given = t < lane.given};
    step(token, state.data(), row.data(), o.data() + t * v.cols());
    if (result.states.size() < positions.size() && positions[result.states.size()] == t + 1) {
      result.states.push_back(state.cast<double>());
    }
  }
  result.o = o.cast<double>();
  return result;
}

}  // namespace goldenrule::delta
