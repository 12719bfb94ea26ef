// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/chunk_f32_emulator.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/delta/emulation/kernel_lane.hpp"

namespace goldenrule::delta {
namespace {

class ChunkKernel {
 public:
  ChunkKernel(const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& initial,
              const contract::Contract& contract, std::int64_t chunk, std::uint64_t seed,
              std::uint64_t stream, Keep keep)
      : choices_(seed),
        lane_(kernel_lane(lane, contract, choices_)),
        v_(v.cast<float>()),
        chunk_(chunk),
        keeps_(keep == Keep::kStages),
        state_(initial.cast<float>()),
        shuffle_(seed, "order/" + std::to_string(stream)) {
    if (!keeps_) return;
    stages_.G = Matrix<float>(v.rows(), lane_.alpha.cols());
    stages_.A = stages_.T = Matrix<float>::Zero(v.rows(), chunk);
    if (choices_.direct) return;
    stages_.w = Matrix<float>(v.rows(), lane.K);
    stages_.u = Matrix<float>(v.rows(), v.cols());
  }

  FormResult<float> run() {
    FormResult<float> result{.o = Matrix<float>(v_.rows(), v_.cols()), .state = {}};
    d_ = result.o;
    for (std::int64_t first = 0; first < v_.rows(); first += chunk_) {
      const std::int64_t c = std::min<std::int64_t>(chunk_, v_.rows() - first);
      result.o.middleRows(first, c) = run_chunk(first, c);
    }
    result.state = std::move(state_);
    if (keeps_) stages_.v_new = d_;
    result.stages = std::move(stages_);
    result.d = std::move(d_);
    return result;
  }

 private:
  // start + sum_i a(i) b(i)
  template <class A, class B>
  float sum(std::int64_t n, float start, const A& a, const B& b) const {
    if (choices_.tree) {
      const float total = n == 0 ? 0.0F : tree(order_for(n), 0, n, a, b);
      return start + total;
    }
    float total = choices_.onto ? start : 0.0F;
    for (const std::int64_t i : order_for(n)) {
      total = add_product(choices_.fused, total, a(i), b(i));
    }
    return choices_.onto ? total : start + total;
  }

  template <class A, class B>
  float tree(const std::vector<std::int64_t>& order, std::int64_t begin, std::int64_t end,
             const A& a, const B& b) const {
    if (end - begin == 1) {
      const std::int64_t i = order[static_cast<std::size_t>(begin)];
      return a(i) * b(i);
    }
    const std::int64_t middle = begin + (end - begin) / 2;
    return tree(order, begin, middle, a, b) + tree(order, middle, end, a, b);
  }

  [[nodiscard]] const std::vector<std::int64_t>& order_for(std::int64_t n) const {
    auto& order = orders_[static_cast<std::size_t>(n)];
    if (std::ssize(order) != n) order = random_order(shuffle_, n, n);
    return order;
  }

  // c + sign a b
  Matrix<float> add(const Matrix<float>& c, float sign, const Matrix<float>& a,
                    const Matrix<float>& b) const {
    Matrix<float> result = c;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
      for (std::int64_t j = 0; j < b.cols(); ++j) {
        result(i, j) = sum(
            a.cols(), c(i, j), [&](std::int64_t l) { return sign * a(i, l); },
            [&](std::int64_t l) { return b(l, j); });
      }
    }
    return result;
  }

  Matrix<float> product(const Matrix<float>& a, const Matrix<float>& b) const {
    return add(Matrix<float>::Zero(a.rows(), b.cols()), 1.0F, a, b);
  }

  // G of the chunk [c, gates].
  Matrix<float> cumulated(std::int64_t first, std::int64_t c) const {
    Matrix<float> g = lane_.log_alpha.middleRows(first, c);
    if (choices_.floors) {
      g = g.unaryExpr([](float x) { return std::isinf(x) && x < 0.0F ? kFlooredGate : x; }).eval();
    }
    Matrix<float> G = g;
    for (std::int64_t x = 0; x < g.cols(); ++x) {
      float running = 0.0F;
      double wide = 0.0;
      for (std::int64_t i = 0; i < c; ++i) {
        running += g(i, x);
        wide += static_cast<double>(g(i, x));
        G(i, x) = choices_.cumulation == 2 ? static_cast<float>(wide) : running;
      }
      if (choices_.cumulation != 1) continue;
      G.col(x) = g.col(x);  // a scan in log2(c) passes
      for (std::int64_t step = 1; step < c; step *= 2) {
        for (std::int64_t i = c - 1; i >= step; --i) G(i, x) += G(i - step, x);
      }
    }
    return G;
  }

  // The decay of channel x from token j of a chunk (-1: from its start) to token i: exp of a
  // difference of cumulated gates. Behind an erased state that is -inf + inf; a kernel that takes
  // alpha = 0 must do otherwise, here by multiplying.
  [[nodiscard]] float decay(const Matrix<float>& G, std::int64_t first, std::int64_t i,
                            std::int64_t j, std::int64_t x) const {
    const float difference = j < 0 ? G(i, x) : G(i, x) - G(j, x);
    if (!std::isnan(difference)) return std::exp(difference);
    float d = 1.0F;
    for (std::int64_t l = j + 1; l <= i; ++l) d *= lane_.alpha(first + l, x);
    return d;
  }

  [[nodiscard]] std::int64_t gate_of(std::int64_t x) const {
    return lane_.alpha.cols() == 1 ? 0 : x;
  }

  // <x_i D_ij, k_j>
  float decayed_dot(const Matrix<float>& x, const Matrix<float>& k, const Matrix<float>& G,
                    std::int64_t first, std::int64_t i, std::int64_t j) const {
    const bool one_gate = G.cols() == 1;
    const float dot = sum(
        k.cols(), 0.0F, [&](std::int64_t l) { return x(i, l); },
        [&](std::int64_t l) { return one_gate ? k(j, l) : k(j, l) * decay(G, first, i, j, l); });
    return one_gate ? dot * decay(G, first, i, j, 0) : dot;
  }

  void keep(std::int64_t first, const Matrix<float>& G, const Matrix<float>& A,
            const Matrix<float>& T) {
    stages_.G.middleRows(first, G.rows()) = G;
    stages_.A.block(first, 0, A.rows(), A.cols()) = A;
    stages_.T.block(first, 0, T.rows(), T.cols()) = T;
    stages_.h.push_back(state_);
  }

  // v_new = u - w S, with w and u from T.
  Matrix<float> corrections_wy(std::int64_t first, const Matrix<float>& T,
                               const Matrix<float>& beta_v, const Matrix<float>& beta_k) {
    const Matrix<float> w = product(T, beta_k);
    const Matrix<float> u = product(T, beta_v);
    if (keeps_) {
      stages_.w.middleRows(first, w.rows()) = w;
      stages_.u.middleRows(first, u.rows()) = u;
    }
    return add(u, -1.0F, w, state_);
  }

  // T = (I + A)^-1 by substitution.
  [[nodiscard]] Matrix<float> inverse(const Matrix<float>& A) const {
    Matrix<float> T = Matrix<float>::Identity(A.rows(), A.rows());
    for (std::int64_t i = 1; i < A.rows(); ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        T(i, j) = -sum(
            i, 0.0F, [&](std::int64_t l) { return A(i, l); },
            [&](std::int64_t l) { return T(l, j); });
      }
    }
    return T;
  }

  Matrix<float> run_chunk(std::int64_t first, std::int64_t c) {
    const Matrix<float> G = cumulated(first, c);
    const Matrix<float> q = lane_.q.middleRows(first, c);
    const Matrix<float> k = lane_.k.middleRows(first, c);
    const Matrix<float> v = v_.middleRows(first, c);
    const auto beta = [&](std::int64_t i) {
      return lane_.beta[static_cast<std::size_t>(first + i)];
    };
    const auto is_given = [&](std::int64_t i) { return first + i < lane_.given; };
    Matrix<float> A = Matrix<float>::Zero(c, c);
    Matrix<float> P = Matrix<float>::Zero(c, c);
    for (std::int64_t i = 0; i < c; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        if (j < i) A(i, j) = beta(i) * decayed_dot(k, k, G, first, i, j);
        P(i, j) = decayed_dot(q, k, G, first, i, j);
      }
    }
    const Matrix<float> T = inverse(A);
    if (keeps_) keep(first, G, A, T);
    Matrix<float> k_in = k;
    Matrix<float> q_in = q;
    Matrix<float> k_out = k;
    for (std::int64_t i = 0; i < c; ++i) {
      for (std::int64_t x = 0; x < k.cols(); ++x) {
        const std::int64_t g = gate_of(x);
        k_in(i, x) *= decay(G, first, i, -1, g);
        q_in(i, x) *= decay(G, first, i, -1, g);
        k_out(i, x) *= decay(G, first, c - 1, i, g);
      }
    }
    Matrix<float> v_new;
    if (choices_.direct) {
      Matrix<float> X = add(v, -1.0F, k_in, state_);
      for (std::int64_t i = 0; i < c; ++i) {
        if (!is_given(i)) X.row(i) *= beta(i);
      }
      const std::int64_t given = std::clamp<std::int64_t>(lane_.given - first, 0, c);
      X.topRows(given) = v.topRows(given);
      v_new = product(T, X);
    } else {
      Matrix<float> beta_v = v;
      for (std::int64_t i = 0; i < c; ++i) {
        if (!is_given(i)) beta_v.row(i) *= beta(i);
        k_in.row(i) *= beta(i);
      }
      v_new = corrections_wy(first, T, beta_v, k_in);
    }
    d_.middleRows(first, c) = v_new;
    const Matrix<float> o = add(product(q_in, state_), 1.0F, P, v_new);
    for (std::int64_t x = 0; x < k.cols(); ++x)
      state_.row(x) *= decay(G, first, c - 1, -1, gate_of(x));
    state_ = add(state_, 1.0F, k_out.transpose(), v_new);
    return o;
  }

  const KernelChoices choices_;
  const KernelLane lane_;
  const Matrix<float> v_;
  const std::int64_t chunk_;
  const bool keeps_;
  ChunkStages<float> stages_;
  Matrix<float> state_, d_;
  const random::Stream shuffle_;
  mutable std::map<std::size_t, std::vector<std::int64_t>> orders_;
};

}  // namespace

delta::FormResult<float> emulate_chunks_f32(const Lane<double>& lane, const Matrix<double>& v,
                                            const Matrix<double>& initial,
                                            const contract::Contract& contract, std::int64_t chunk,
                                            std::uint64_t seed, std::uint64_t stream, Keep keep) {
  return ChunkKernel(lane, v, initial, contract, chunk, seed, stream, keep).run();
}

}  // namespace goldenrule::delta
