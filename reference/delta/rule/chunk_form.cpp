// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "reference/delta/rule/forms.hpp"
#include "reference/delta/rule/widen.hpp"

namespace goldenrule::delta {
namespace {

// Everything that one chunk needs of its keys, queries and gates; c tokens.
template <class S>
struct ChunkOperands {
  Matrix<S> A;          // [c,c] strictly lower
  Matrix<S> QK;         // [c,c] lower, < q^_i * D_ij, k^_j >
  Matrix<S> k_in;       // [c,K] beta_i k^_i * E_i
  Matrix<S> q_in;       // [c,K] q^_i * E_i
  Matrix<S> k_out;      // [c,K] k^_j * D_cj
  Matrix<S> decay_out;  // [K,1] E_c
};

template <class S>
ChunkOperands<S> chunk_operands(const Lane<S>& lane, std::int64_t first, std::int64_t c) {
  const std::int64_t K = lane.K;
  ChunkOperands<S> m{.A = Matrix<S>::Constant(c, c, S(0)),
                     .QK = Matrix<S>::Constant(c, c, S(0)),
                     .k_in = Matrix<S>(c, K),
                     .q_in = Matrix<S>(c, K),
                     .k_out = Matrix<S>(c, K),
                     .decay_out = Matrix<S>(K, 1)};
  std::vector<S> decay(static_cast<std::size_t>(K));
  // Column j of the chunk: D_ij for i = j, j+1, ..., by one factor alpha_i at a time.
  for (std::int64_t j = 0; j < c; ++j) {
    std::fill(decay.begin(), decay.end(), S(1));
    const S* kj = lane.k_row(first + j);
    for (std::int64_t i = j; i < c; ++i) {
      const S* ki = lane.k_row(first + i);
      const S* qi = lane.q_row(first + i);
      S kk(0);
      S qk(0);
      for (std::int64_t x = 0; x < K; ++x) {
        S& d = decay[static_cast<std::size_t>(x)];
        if (i > j) d *= lane.alpha_at(first + i, x);
        kk += ki[x] * d * kj[x];
        qk += qi[x] * d * kj[x];
      }
      m.QK(i, j) = qk;
      if (i > j) m.A(i, j) = lane.beta[static_cast<std::size_t>(first + i)] * kk;
    }
    for (std::int64_t x = 0; x < K; ++x) m.k_out(j, x) = kj[x] * decay[static_cast<std::size_t>(x)];
  }
  std::fill(decay.begin(), decay.end(), S(1));
  for (std::int64_t i = 0; i < c; ++i) {
    for (std::int64_t x = 0; x < K; ++x) {
      S& d = decay[static_cast<std::size_t>(x)];
      d *= lane.alpha_at(first + i, x);
      m.k_in(i, x) = lane.beta[static_cast<std::size_t>(first + i)] * lane.k_row(first + i)[x] * d;
      m.q_in(i, x) = lane.q_row(first + i)[x] * d;
    }
  }
  for (std::int64_t x = 0; x < K; ++x) m.decay_out(x, 0) = decay[static_cast<std::size_t>(x)];
  return m;
}

// (I + A)^-1 by forward substitution, row by row.
template <class S>
Matrix<S> unit_lower_inverse(const Matrix<S>& A) {
  const std::int64_t c = A.rows();
  Matrix<S> T = Matrix<S>::Constant(c, c, S(0));
  for (std::int64_t i = 0; i < c; ++i) {
    T(i, i) = S(1);
    for (std::int64_t j = 0; j < i; ++j) {
      S sum(0);
      for (std::int64_t l = j; l < i; ++l) sum += A(i, l) * T(l, j);
      T(i, j) = -sum;
    }
  }
  return T;
}

template <class S>
void resize(ChunkStages<S>& stages, const Lane<S>& lane, std::int64_t V, std::int64_t C) {
  stages.G = Matrix<S>(lane.tokens, lane.gates);
  stages.A = Matrix<S>::Constant(lane.tokens, C, S(0));
  stages.T = Matrix<S>::Constant(lane.tokens, C, S(0));
  stages.w = Matrix<S>(lane.tokens, lane.K);
  stages.u = Matrix<S>(lane.tokens, V);
  stages.v_new = Matrix<S>(lane.tokens, V);
  stages.h.clear();
}

// log alpha. In double that of the lane, which was not rounded to alpha in between; and everywhere
// where alpha leaves the range of double, so that its logarithm has lost digits, or all.
template <class S>
S log_of_alpha(const Lane<S>& lane, std::int64_t t, std::int64_t g) {
  constexpr double kSmall = -600.0;
  const double log_alpha = lane.log_alpha[static_cast<std::size_t>(t * lane.gates + g)];
  if (std::is_same_v<S, double> || !(log_alpha > kSmall)) return S(log_alpha);
  return scalar::log(lane.alpha_at(t, g));
}

template <class S>
void record_gates(ChunkStages<S>& stages, const Lane<S>& lane, std::int64_t first, std::int64_t c) {
  for (std::int64_t i = 0; i < c; ++i) {
    for (std::int64_t g = 0; g < lane.gates; ++g) {
      const S log_alpha = log_of_alpha(lane, first + i, g);
      stages.G(first + i, g) = i == 0 ? log_alpha : S(stages.G(first + i - 1, g) + log_alpha);
    }
  }
}

}  // namespace

template <class S>
FormResult<S> chunk_form(const Lane<S>& lane, const Matrix<double>& v,
                         const Matrix<double>& initial, std::int64_t C, ChunkStages<S>* stages) {
  const std::int64_t V = v.cols();
  FormResult<S> result{.o = Matrix<S>(lane.tokens, V), .state = widen<S>(initial)};
  Matrix<S>& state = result.state;
  if (stages != nullptr) resize(*stages, lane, V, C);
  for (std::int64_t first = 0; first < lane.tokens; first += C) {
    const std::int64_t c = std::min(C, lane.tokens - first);
    const ChunkOperands<S> m = chunk_operands(lane, first, c);
    const Matrix<S> T = unit_lower_inverse(m.A);
    Matrix<S> beta_v = widen<S>(v.middleRows(first, c));
    for (std::int64_t i = 0; i < c; ++i) {
      for (std::int64_t x = 0; x < V; ++x) {
        beta_v(i, x) *= lane.beta[static_cast<std::size_t>(first + i)];
      }
    }
    const Matrix<S> w = T * m.k_in;
    const Matrix<S> u = T * beta_v;
    const Matrix<S> v_new = u - w * state;
    if (stages != nullptr) {
      record_gates(*stages, lane, first, c);
      stages->A.block(first, 0, c, c) = m.A;
      stages->T.block(first, 0, c, c) = T;
      stages->w.middleRows(first, c) = w;
      stages->u.middleRows(first, c) = u;
      stages->v_new.middleRows(first, c) = v_new;
      stages->h.push_back(state);
    }
    result.o.middleRows(first, c) = m.q_in * state + m.QK * v_new;
    const Matrix<S> written = m.k_out.transpose() * v_new;
    for (std::int64_t x = 0; x < lane.K; ++x) {
      for (std::int64_t y = 0; y < V; ++y) {
        state(x, y) = m.decay_out(x, 0) * state(x, y) + written(x, y);
      }
    }
  }
  return result;
}

#define GOLDENRULE_INSTANTIATE(S)                                                                 \
  template FormResult<S> chunk_form(const Lane<S>&, const Matrix<double>&, const Matrix<double>&, \
                                    std::int64_t, ChunkStages<S>*);
GOLDENRULE_INSTANTIATE(double)
GOLDENRULE_INSTANTIATE(scalar::Quad)
GOLDENRULE_INSTANTIATE(scalar::Multi)
#undef GOLDENRULE_INSTANTIATE

}  // namespace goldenrule::delta
