// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/expected.hpp"

#include <algorithm>
#include <cmath>

namespace goldenrule::test {
namespace {

constexpr double kU = 0x1p-24;

struct Factor {
  double value, relative_error;
};

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

class Reference {
 public:
  explicit Reference(const Scenario& scenario) : s_(scenario), c_(scenario.c) {
    expected_.o = ExpectedTensor(s_.o.count());
    expected_.final_state = ExpectedTensor(s_.state.count());
    expected_.intermediates = ExpectedTensor(s_.intermediates.count());
  }

  Expected run() {
    for (std::int64_t b = 0; b < c_.B; ++b) {
      for (std::int64_t j = 0; j < c_.HV; ++j) head(b, j);
    }
    return std::move(expected_);
  }

 private:
  bool usable(std::int64_t slot) const {
    return slot != c_.pad_slot && slot >= 0 && slot < s_.pool;
  }
  static std::int64_t integer(const HostTensor& tensor, std::int64_t i) {
    return static_cast<std::int64_t>(tensor.get(i));
  }

  // -1: padded.
  std::int64_t start_slot(std::int64_t b) const {
    std::int64_t slot = b;
    if (s_.ssm_state_indices.present()) {
      slot = integer(s_.ssm_state_indices, b * c_.T + integer(s_.num_accepted, b) - 1);
    } else if (s_.state_indices.present()) {
      slot = integer(s_.state_indices, b);
    } else {
      return b;
    }
    return usable(slot) ? slot : -1;
  }

  Factor alpha(std::int64_t b, std::int64_t t, std::int64_t j, std::int64_t channel) const {
    const std::int64_t head = c_.gate_head == GateHead::kV ? j : s_.qk_head(j);
    const auto input = [&] {
      return c_.kda ? s_.gate.at({b, t, j, channel}) : s_.gate.at({b, t, j});
    };
    const auto shifted = [&] {
      return input() + (c_.kda ? s_.dt_bias.at({head, channel}) : s_.dt_bias.at({head}));
    };
    const auto from_log = [](double log_alpha, double x) {
      return Factor{std::exp(log_alpha), kU * (4 + std::abs(log_alpha) * (12 + std::abs(x)))};
    };
    switch (c_.gate) {
      case Gate::kSoftplus:
        return from_log(-std::exp(s_.A_log.get(head)) * softplus(shifted()), shifted());
      case Gate::kBounded:
        return from_log(-5.0 * sigmoid(std::exp(s_.A_log.get(head)) * shifted()), shifted());
      case Gate::kLog:
        return from_log(input(), 0);
      case Gate::kLog2:
        return from_log(input() * std::log(2.0), 0);
      case Gate::kLinear:
        return {input(), 0};
      case Gate::kNone:
        break;
    }
    return {1, 0};
  }

  Factor beta(std::int64_t b, std::int64_t t, std::int64_t j) const {
    const double x = s_.beta.at({b, t, j});
    if (c_.beta == BetaForm::kDirect) return {x, 0};
    return {(c_.beta == BetaForm::kSigmoid2 ? 2 : 1) * sigmoid(x), kU * (6 + std::abs(x))};
  }

  std::vector<double> normalized(const HostTensor& x, std::int64_t b, std::int64_t t,
                                 std::int64_t h, double scale) const {
    std::vector<double> y(static_cast<std::size_t>(c_.K));
    double sum = 0;
    for (std::int64_t i = 0; i < c_.K; ++i) {
      y[static_cast<std::size_t>(i)] = x.at({b, t, h, i});
      sum += y[static_cast<std::size_t>(i)] * y[static_cast<std::size_t>(i)];
    }
    const double n = std::sqrt(sum);
    const double factor = c_.norm == QkNorm::kNone          ? 1.0
                          : c_.norm == QkNorm::kRsqrtSumEps ? 1.0 / std::sqrt(sum + c_.l2_eps)
                          : c_.norm == QkNorm::kMaxNormEps  ? 1.0 / std::max(n, c_.l2_eps)
                                                            : 1.0 / (n + c_.l2_eps);
    for (double& e : y) e *= factor * scale;
    return y;
  }

  // Element (v, k) of head j in block `block` of a tensor whose head index is block * HV + j.
  std::size_t state_index(std::int64_t block, std::int64_t j, std::int64_t row,
                          std::int64_t channel) const {
    const bool vk = c_.layout == StateLayout::kVK;
    const std::int64_t within = vk ? row * c_.K + channel : channel * c_.V + row;
    return static_cast<std::size_t>((block * c_.HV + j) * c_.K * c_.V + within);
  }

  void store(ExpectedTensor& to, std::int64_t block, std::int64_t j, std::int64_t row,
             const std::vector<double>& state, double error) const {
    for (std::int64_t i = 0; i < c_.K; ++i) {
      const double x = state[static_cast<std::size_t>(i)];
      const std::size_t at = state_index(block, j, row, i);
      to.value[at] = x;
      to.tolerance[at] = error + 0.5 * call::ulp(c_.state, std::abs(x) + error);
      to.written[at] = 1;
    }
  }

  void head(std::int64_t b, std::int64_t j) {
    const std::int64_t start = start_slot(b);
    if (start < 0) {
      for (std::int64_t t = 0; t < c_.T; ++t) {
        for (std::int64_t row = 0; row < c_.V; ++row) set_o(b, t, j, row, 0, 0);
      }
      return;
    }
    tokens_.clear();
    for (std::int64_t t = 0; t < c_.T; ++t) tokens_.push_back(token(b, t, j));
    for (std::int64_t row = 0; row < c_.V; ++row) one_row(b, j, row, start);
  }

  /// What a token means to all rows of a head.
  struct Token {
    std::vector<double> alpha, k, q;
    double alpha_max = 0, alpha_error = 0, k_norm = 0, q_norm = 0;
    Factor beta{};
  };

  Token token(std::int64_t b, std::int64_t t, std::int64_t j) const {
    const std::int64_t h = s_.qk_head(j);
    Token x;
    x.k = normalized(s_.k, b, t, h, 1.0);
    x.q = normalized(s_.q, b, t, h, s_.scale);
    x.beta = beta(b, t, j);
    for (std::int64_t i = 0; i < c_.K; ++i) {
      const Factor a = alpha(b, t, j, i);
      x.alpha.push_back(a.value);
      x.alpha_max = std::max(x.alpha_max, a.value);
      x.alpha_error = std::max(x.alpha_error, a.value * a.relative_error);
      const auto at = static_cast<std::size_t>(i);
      x.k_norm += x.k[at] * x.k[at];
      x.q_norm += x.q[at] * x.q[at];
    }
    x.k_norm = std::sqrt(x.k_norm);
    x.q_norm = std::sqrt(x.q_norm);
    return x;
  }

  void set_o(std::int64_t b, std::int64_t t, std::int64_t j, std::int64_t row, double x,
             double error) {
    const auto at = static_cast<std::size_t>(((b * c_.T + t) * c_.HV + j) * c_.V + row);
    expected_.o.value[at] = x;
    expected_.o.tolerance[at] =
        error == 0 ? 0 : error + 0.5 * call::ulp(c_.io, std::abs(x) + error);
    expected_.o.written[at] = 1;
  }

  void one_row(std::int64_t b, std::int64_t j, std::int64_t row, std::int64_t start) {
    const auto n = static_cast<std::size_t>(c_.K);
    std::vector<double> state(n);
    for (std::size_t i = 0; i < n; ++i) {
      state[i] = s_.state.get(
          static_cast<std::int64_t>(state_index(start, j, row, static_cast<std::int64_t>(i))));
    }
    std::int64_t final_slot = start, after = c_.T;
    if (s_.output_state_indices.present()) final_slot = integer(s_.output_state_indices, b);
    if (s_.accepted.present()) after = integer(s_.accepted, b);
    const bool scatter = s_.ssm_state_indices.present();
    const bool keeps =
        !c_.disable_update && !scatter && (usable(final_slot) || !s_.state_indices.present());
    double error = 0;
    if (keeps && after == 0) store(expected_.final_state, final_slot, j, row, state, error);
    for (std::int64_t t = 0; t < c_.T; ++t) {
      step(b, t, j, row, state, error);
      if (c_.intermediates) {
        store(expected_.intermediates, b * (c_.T + c_.extra_rows) + t, j, row, state, error);
      }
      if (scatter && !c_.disable_update) {
        const std::int64_t slot = integer(s_.ssm_state_indices, b * c_.T + t);
        if (usable(slot)) store(expected_.final_state, slot, j, row, state, error);
      }
      if (keeps && after == t + 1) {
        store(expected_.final_state, final_slot, j, row, state, error);
      }
    }
  }

  void step(std::int64_t b, std::int64_t t, std::int64_t j, std::int64_t row,
            std::vector<double>& state, double& error) {
    const auto n = static_cast<std::size_t>(c_.K);
    const auto& [alpha, k, q, alpha_max, alpha_error, k_norm, q_norm, beta_t] =
        tokens_[static_cast<std::size_t>(t)];
    const double chain = kU * (static_cast<double>(c_.K) / 8 + 3);
    const double rel_row = 8 * kU + chain;
    double decayed = 0, predicted = 0, predicted_abs = 0;
    for (std::size_t i = 0; i < n; ++i) {
      decayed += state[i] * state[i];
      state[i] *= alpha[i];
      predicted += state[i] * k[i];
      predicted_abs += std::abs(state[i] * k[i]);
    }
    error = alpha_max * error + (alpha_error + kU * alpha_max) * std::sqrt(decayed);
    const double v = s_.v.at({b, t, j, row});
    const double d = beta_t.value * (v - predicted);
    const double d_error =
        beta_t.value * (k_norm * error + (rel_row + chain) * predicted_abs + kU * std::abs(v)) +
        (beta_t.relative_error + 2 * kU) * std::abs(d);
    double norm = 0, o = 0, o_abs = 0;
    for (std::size_t i = 0; i < n; ++i) {
      state[i] += k[i] * d;
      norm += state[i] * state[i];
      o += state[i] * q[i];
      o_abs += std::abs(state[i] * q[i]);
    }
    // 2^-126: where alpha underflows, errors are absolute.
    error +=
        k_norm * d_error + (rel_row + kU) * k_norm * std::abs(d) + kU * std::sqrt(norm) + 0x1p-126;
    set_o(b, t, j, row, o, q_norm * error + (rel_row + chain) * o_abs + 0x1p-126);
  }

  const Scenario& s_;
  const Case& c_;
  std::vector<Token> tokens_;
  Expected expected_;
};

}  // namespace

Expected expect(const Scenario& s) { return Reference(s).run(); }

}  // namespace goldenrule::test
