// SPDX-License-Identifier: Apache-2.0
#include "reference/bounds/recurrent_emulator.hpp"

#include <cmath>
#include <numeric>
#include <vector>

#include "fixtures/random/philox.hpp"

namespace goldenrule::bounds {
namespace {

using rule::Lane;
using MatrixF = rule::Matrix<float>;

// The choices of one kernel.
struct Habits {
  bool tree, fused, late_decay, early_output;
  double exp, log_alpha, softplus, logit, sigmoid, norm_k, norm_q;  // on (-1, 1)

  explicit Habits(std::uint64_t seed) {
    const random::Stream stream(seed, "kernel");
    const auto coin = [&](std::int64_t i) { return stream.uniform(i) < 0.5; };
    const auto sign = [&](std::int64_t i) { return 2.0 * stream.uniform(i) - 1.0; };
    tree = coin(0);
    fused = coin(1);
    late_decay = coin(2);
    early_output = coin(3);
    exp = sign(4);
    log_alpha = sign(5);
    softplus = sign(6);
    logit = sign(7);
    sigmoid = sign(8);
    norm_k = sign(9);
    norm_q = sign(10);
  }
};

class RecurrentEmulator {
 public:
  RecurrentEmulator(const Lane<double>& lane, const rule::Matrix<double>& initial,
                    const Contract& contract, std::uint64_t seed, std::uint64_t stream)
      : lane_(lane),
        functions_(contract.functions),
        habits_(seed),
        state_(initial.cast<float>()),
        order_(static_cast<std::size_t>(lane.K)),
        shuffle_(seed, "order/" + std::to_string(stream)) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  MatrixF run(const rule::Matrix<double>& v, const StateSink& sink) {
    MatrixF o(lane_.tokens, v.cols());
    for (std::int64_t t = 0; t < lane_.tokens; ++t) {
      step(t, v.row(t).cast<float>(), o);
      sink(t + 1, state_);
    }
    return o;
  }

 private:
  using Row = Eigen::RowVectorXf;

  void step(std::int64_t t, const Row& v, MatrixF& o) {
    const std::int64_t K = lane_.K;
    shuffle_order(t);
    std::vector<float> k(static_cast<std::size_t>(K));
    std::vector<float> q(static_cast<std::size_t>(K));
    std::vector<float> alpha(static_cast<std::size_t>(K));
    for (std::int64_t i = 0; i < K; ++i) {
      const auto at = static_cast<std::size_t>(i);
      k[at] = static_cast<float>(lane_.k_row(t)[i] * (1.0 + habits_.norm_k * norm_error_k()));
      q[at] = static_cast<float>(lane_.q_row(t)[i] * (1.0 + habits_.norm_q * norm_error_q()));
      alpha[at] = gate(t, i);
    }
    const float beta = beta_at(t);
    const bool one_gate = lane_.gates == 1;
    const bool late = one_gate && habits_.late_decay;
    const MatrixF before = state_;
    for (std::int64_t i = 0; i < K; ++i) state_.row(i) *= alpha[static_cast<std::size_t>(i)];
    Row predicted =
        late ? Row(contract_columns(before, k) * alpha[0]) : contract_columns(state_, k);
    const Row delta = (v - predicted) * beta;
    for (std::int64_t i = 0; i < K; ++i) {
      for (std::int64_t c = 0; c < v.size(); ++c) {
        state_(i, c) = add_product(state_(i, c), k[static_cast<std::size_t>(i)], delta(c));
      }
    }
    if (one_gate && habits_.early_output) {
      float kq = 0.0F;
      for (const std::int64_t i : order_) {
        const auto at = static_cast<std::size_t>(i);
        kq = add_product(kq, k[at], q[at]);
      }
      o.row(t) = contract_columns(before, q) * alpha[0] + delta * kq;
    } else {
      o.row(t) = contract_columns(state_, q);
    }
  }

  // sum_i state(i, :) x(i), in the order of this token.
  Row contract_columns(const MatrixF& state, const std::vector<float>& x) const {
    if (habits_.tree) return tree_sum(state, x, 0, order_.size());
    Row sum = Row::Zero(state.cols());
    for (const std::int64_t i : order_) {
      for (std::int64_t c = 0; c < sum.size(); ++c) {
        sum(c) = add_product(sum(c), state(i, c), x[static_cast<std::size_t>(i)]);
      }
    }
    return sum;
  }

  Row tree_sum(const MatrixF& state, const std::vector<float>& x, std::size_t begin,
               std::size_t end) const {
    if (end - begin == 1) {
      const std::int64_t i = order_[begin];
      return state.row(i) * x[static_cast<std::size_t>(i)];
    }
    const std::size_t middle = begin + (end - begin) / 2;
    return tree_sum(state, x, begin, middle) + tree_sum(state, x, middle, end);
  }

  [[nodiscard]] float add_product(float sum, float a, float b) const {
    return habits_.fused ? std::fma(a, b, sum) : sum + a * b;
  }

  void shuffle_order(std::int64_t t) {
    for (std::size_t i = order_.size(); i > 1; --i) {
      const auto index = static_cast<std::int64_t>(i) + t * lane_.K;
      std::swap(order_[i - 1], order_[shuffle_.bits(index) % i]);
    }
  }

  [[nodiscard]] float gate(std::int64_t t, std::int64_t i) const {
    const rule::TokenBounds& b = lane_.bounds[static_cast<std::size_t>(t)];
    const double alpha = lane_.alpha_at(t, i);
    if (b.by_exp == 0.0 || alpha == 0.0) return static_cast<float>(alpha);
    // by_softplus / by_exp is exp(A_log), the same for all channels; the sensitivity to the logit
    // is the largest of the channels.
    const double log_alpha = std::log(std::fabs(alpha));
    const double moved = (habits_.softplus * functions_.softplus * b.by_softplus +
                          habits_.logit * functions_.logit * b.by_logit) /
                         b.by_exp;
    double kernel = log_alpha * (1.0 + habits_.log_alpha * functions_.log_alpha) + moved;
    if (log_alpha <= 0.0) kernel = std::min(kernel, 0.0);  // softplus is never negative
    return static_cast<float>(
        std::copysign(std::exp(kernel) * (1.0 + habits_.exp * functions_.exp), alpha));
  }

  [[nodiscard]] float beta_at(std::int64_t t) const {
    const rule::TokenBounds& b = lane_.bounds[static_cast<std::size_t>(t)];
    const double relative =
        b.beta_logit == 0.0
            ? 0.0
            : habits_.sigmoid * (functions_.sigmoid + b.beta_logit * functions_.logit);
    return static_cast<float>(lane_.beta[static_cast<std::size_t>(t)] * (1.0 + relative));
  }

  // Nothing is normalised where the lane's rows are the inputs themselves.
  [[nodiscard]] double norm_error_k() const { return lane_.k_error > 0 ? functions_.norm : 0.0; }
  [[nodiscard]] double norm_error_q() const { return lane_.k_error > 0 ? functions_.norm : 0.0; }

  const Lane<double>& lane_;
  const FunctionErrors& functions_;
  const Habits habits_;
  MatrixF state_;
  std::vector<std::int64_t> order_;
  const random::Stream shuffle_;
};

}  // namespace

MatrixF emulate_recurrent(const Lane<double>& lane, const rule::Matrix<double>& v,
                          const rule::Matrix<double>& initial, const Contract& contract,
                          std::uint64_t seed, std::uint64_t stream, const StateSink& sink) {
  return RecurrentEmulator(lane, initial, contract, seed, stream).run(v, sink);
}

}  // namespace goldenrule::bounds
