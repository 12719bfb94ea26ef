// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/recurrent_emulator.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "reference/delta/emulation/kernel_lane.hpp"

namespace goldenrule::delta {
namespace {

using MatrixF = Matrix<float>;

class RecurrentEmulator {
 public:
  RecurrentEmulator(const Lane<double>& lane, const Matrix<double>& initial,
                    const contract::Contract& contract, std::uint64_t seed, std::uint64_t stream)
      : choices_(seed),
        lane_(kernel_lane(lane, contract, choices_)),
        state_(initial.cast<float>()),
        order_(random_order(random::Stream(seed, "order/" + std::to_string(stream)), lane.K, 0)) {}

  FormResult<float> run(const Matrix<double>& v, const StateSink& sink) {
    FormResult<float> result{.o = MatrixF(lane_.q.rows(), v.cols()), .state = {}};
    result.d = result.o;
    for (std::int64_t t = 0; t < lane_.q.rows(); ++t) {
      step(t, v.row(t).cast<float>(), result);
      sink(t + 1, state_);
    }
    result.state = state_;
    return result;
  }

 private:
  using Row = Eigen::RowVectorXf;

  void step(std::int64_t t, const Row& v, FormResult<float>& result) {
    MatrixF& o = result.o;
    const std::int64_t K = lane_.q.cols();
    const float* k = lane_.k.row(t).data();
    const float* q = lane_.q.row(t).data();
    const bool one_gate = lane_.alpha.cols() == 1;
    const auto alpha = [&](std::int64_t i) { return lane_.alpha(t, one_gate ? 0 : i); };
    const float beta = lane_.beta[static_cast<std::size_t>(t)];
    const bool late = one_gate && choices_.late_decay;
    const MatrixF before = state_;
    for (std::int64_t i = 0; i < K; ++i) state_.row(i) *= alpha(i);
    Row predicted =
        late ? Row(contract_columns(before, k) * alpha(0)) : contract_columns(state_, k);
    const Row delta = t < lane_.given ? v : Row((v - predicted) * beta);
    result.d.row(t) = delta;
    for (std::int64_t i = 0; i < K; ++i) {
      for (std::int64_t c = 0; c < v.size(); ++c) {
        state_(i, c) = add_product(choices_.fused, state_(i, c), k[i], delta(c));
      }
    }
    if (one_gate && choices_.early_output) {
      float kq = 0.0F;
      for (const std::int64_t i : order_) kq = add_product(choices_.fused, kq, k[i], q[i]);
      o.row(t) = contract_columns(before, q) * alpha(0) + delta * kq;
    } else {
      o.row(t) = contract_columns(state_, q);
    }
  }

  // sum_i state(i, :) x(i), in the order of this token.
  Row contract_columns(const MatrixF& state, const float* x) const {
    if (choices_.tree) return tree_sum(state, x, 0, order_.size());
    Row sum = Row::Zero(state.cols());
    for (const std::int64_t i : order_) {
      for (std::int64_t c = 0; c < sum.size(); ++c) {
        sum(c) = add_product(choices_.fused, sum(c), state(i, c), x[i]);
      }
    }
    return sum;
  }

  Row tree_sum(const MatrixF& state, const float* x, std::size_t begin, std::size_t end) const {
    if (end - begin == 1) {
      const std::int64_t i = order_[begin];
      return state.row(i) * x[i];
    }
    const std::size_t middle = begin + (end - begin) / 2;
    return tree_sum(state, x, begin, middle) + tree_sum(state, x, middle, end);
  }

  const KernelChoices choices_;
  const KernelLane lane_;
  MatrixF state_;
  const std::vector<std::int64_t> order_;
};

}  // namespace

FormResult<float> emulate_recurrent(const Lane<double>& lane, const Matrix<double>& v,
                                    const Matrix<double>& initial,
                                    const contract::Contract& contract, std::uint64_t seed,
                                    std::uint64_t stream, const StateSink& sink) {
  return RecurrentEmulator(lane, initial, contract, seed, stream).run(v, sink);
}

}  // namespace goldenrule::delta
