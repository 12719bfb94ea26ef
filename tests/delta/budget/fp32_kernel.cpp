// SPDX-License-Identifier: Apache-2.0
//
// Length: a whole fp32 kernel, every mode and gate, that shares no code with the library.
#include "tests/delta/budget/fp32_kernel.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"

namespace goldenrule::delta::test {
namespace {

using Row = std::vector<float>;

// One rounding of an fp32 result is 2^-24; what a function's own roundings take is not granted to
// its error twice.
constexpr double kRounding = 0x1p-24;

struct Choices {
  std::size_t partial_sums = 1;
  bool fused = false;
  bool fold_decay = false;
  bool fold_norm = false;
  int direction = 0;  // of function errors; 0: scattered
  std::uint64_t seed = 0;

  explicit Choices(std::uint64_t s) : seed(s) {
    std::mt19937_64 random(s);
    constexpr std::array<std::size_t, 4> kPartial{1, 2, 8, 32};
    partial_sums = kPartial[random() % 4];
    fused = random() % 2 == 0;
    fold_decay = random() % 2 == 0;
    fold_norm = random() % 2 == 0;
    direction = static_cast<int>(random() % 3) - 1;
  }

  // In [-1, 1], a function of the argument.
  [[nodiscard]] double error(double argument) const {
    if (direction != 0) return direction;
    std::uint64_t h = std::bit_cast<std::uint64_t>(argument) ^ (seed * 0x9e3779b97f4a7c15ULL);
    h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9ULL;
    h = (h ^ (h >> 29)) * 0x94d049bb133111ebULL;
    return static_cast<double>(h >> 11) * 0x1p-52 - 1.0;
  }

  // x (1 + e) rounded to fp32, |e| at most `relative` with the rounding included.
  [[nodiscard]] float off(double x, double relative, double argument) const {
    return static_cast<float>(x * (1.0 + error(argument) * std::fmax(relative - kRounding, 0.0)));
  }

  [[nodiscard]] float multiply_add(float a, float b, float c) const {
    return fused ? std::fmaf(a, b, c) : a * b + c;
  }
};

// Sums over K for a row of columns: partial sums, then a tree over them.
class Sum {
 public:
  Sum(const Choices& choices, std::size_t columns)
      : choices_(choices), partial_(choices.partial_sums, Row(columns)) {}

  void clear() {
    for (Row& row : partial_) std::ranges::fill(row, 0.0F);
    count_ = 0;
  }
  void add(float x, const float* column_values) {
    Row& row = partial_[count_++ % partial_.size()];
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = choices_.multiply_add(x, column_values[c], row[c]);
    }
  }
  const Row& total() {
    for (std::size_t step = 1; step < partial_.size(); step *= 2) {
      for (std::size_t i = 0; i + step < partial_.size(); i += 2 * step) {
        for (std::size_t c = 0; c < partial_[i].size(); ++c)
          partial_[i][c] += partial_[i + step][c];
      }
    }
    return partial_[0];
  }

 private:
  const Choices& choices_;
  std::vector<Row> partial_;
  std::size_t count_ = 0;
};

class Fp32Kernel {
 public:
  Fp32Kernel(const call::Record& record, const contract::FunctionErrors& errors, call::DType state,
             std::uint64_t seed)
      : record_(record),
        plan_(call::make_plan(record, true)),
        dims_(plan_.dims),
        errors_(errors),
        choices_(seed),
        order_(static_cast<std::size_t>(dims_.K)),
        random_(seed) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto allocate = [&](const std::string& name, call::DType type) -> call::Tensor& {
      call::Tensor t(type, call::output_shape(record, dims_, name));
      return outputs_.emplace(name, std::move(t)).first->second;
    };
    allocate("o", call::DType::kF32);
    allocate("final_state", state);
    if (plan_.kept_states) {
      call::Tensor& t = allocate(std::string(call::name_of(*plan_.kept_states)), state);
      for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, std::nan(""));
    }
    for (const auto& [name, tensor] : record.inputs) inputs_.emplace(name, tensor.to_doubles());
    if (inputs_.contains("initial_state")) {
      call::Tensor& final_state = outputs_.at("final_state");
      for (std::int64_t i = 0; i < final_state.size(); ++i) {
        final_state.set(i, at("initial_state", i));
      }
    }
  }

  call::TensorMap run() {
    for (const call::Sequence& s : plan_.sequences) {
      for (std::int64_t head = 0; head < dims_.HV && !s.padded; ++head) run_head(s, head);
    }
    return std::move(outputs_);
  }

 private:
  [[nodiscard]] double at(const char* name, std::int64_t i) const {
    const auto it = inputs_.find(name);
    return it == inputs_.end() ? 0.0 : it->second[static_cast<std::size_t>(i)];
  }

  [[nodiscard]] std::int64_t state_index(std::int64_t block, std::int64_t head, std::int64_t i,
                                         std::int64_t c) const {
    const bool vk = record_.convention.state_layout == call::StateLayout::kVK;
    return (block * dims_.HV + head) * dims_.K * dims_.V + (vk ? c * dims_.K + i : i * dims_.V + c);
  }

  void store(const call::Snapshot& s, std::int64_t head) {
    call::Tensor& to = outputs_.at(std::string(call::name_of(s.target)));
    for (std::int64_t i = 0; i < dims_.K; ++i) {
      for (std::int64_t c = 0; c < dims_.V; ++c) {
        const float z = state_[static_cast<std::size_t>(i * dims_.V + c)];
        to.set(state_index(s.block, head, i, c), static_cast<double>(z));
      }
    }
  }

  [[nodiscard]] float alpha(std::int64_t token, std::int64_t head, std::int64_t i) const {
    const call::Convention& c = record_.convention;
    const std::int64_t gates = record_.op == call::Op::kKda ? dims_.K : 1;
    const std::int64_t x = (token * dims_.HV + head) * gates + i;
    const double g = at("g", x);
    const std::int64_t owner =
        c.gate_head == call::GateHead::kV ? head : dims_.qk_head(c.head_map, head);
    const auto logit = [&] {
      return choices_.off(at("a", x) + at("dt_bias", owner * gates + i), errors_.logit, g + 1);
    };
    // Three roundings on the way to log alpha, the rest of its error in exp(A_log).
    const double A = std::exp(at("A_log", owner));
    const float slope = choices_.off(A, errors_.log_alpha - 3 * kRounding, A);
    float log_alpha = 0.0F;
    switch (c.gate) {
      case call::Gate::kSoftplus: {
        const auto z = static_cast<double>(logit());
        const double scaled = c.softplus_beta * z;
        double sp = z;
        if (scaled <= c.softplus_threshold) {
          const double exact = std::log1p(std::exp(scaled)) / c.softplus_beta;
          // Below 2^-24 the fp32 sum 1 + exp(x) is 1: a kernel returns 0 there, or is accurate.
          const double largest = exact < 0x1p-24 ? exact : errors_.softplus;
          const double off = choices_.error(z) * std::fmin(largest, errors_.softplus);
          sp = std::fmax(exact + off, 0.0);
        }
        log_alpha = -slope * static_cast<float>(sp);
        break;
      }
      case call::Gate::kBounded: {
        // The sigmoid's own error is one of log alpha here, and so is that of its argument.
        const double z = A * static_cast<double>(logit());
        log_alpha = choices_.off(c.lower_bound / (1 + std::exp(-z)), errors_.log_alpha, z);
        break;
      }
      case call::Gate::kLog:
        log_alpha = choices_.off(g, errors_.log_alpha, g);
        break;
      case call::Gate::kLog2:
        log_alpha = choices_.off(g * std::log(2.0), errors_.log_alpha, g);
        break;
      case call::Gate::kLinear:
        return static_cast<float>(g);
      case call::Gate::kNone:
        return 1.0F;
    }
    const auto exponent = static_cast<double>(log_alpha);
    return choices_.off(std::exp(exponent), errors_.exp, exponent);
  }

  [[nodiscard]] float beta(std::int64_t token, std::int64_t head) const {
    const std::int64_t i = token * dims_.HV + head;
    if (record_.convention.beta == call::BetaForm::kDirect) {
      return static_cast<float>(at("beta", i));
    }
    const double factor = record_.convention.beta == call::BetaForm::kSigmoid2 ? 2.0 : 1.0;
    const double b = at("b", i);
    return choices_.off(factor / (1 + std::exp(-b)), errors_.sigmoid, b);
  }

  // Reciprocal of the divisor of a row of q or k, its sum of squares taken in this kernel's order.
  float reciprocal_norm(const char* name, std::int64_t offset) {
    const call::Convention& c = record_.convention;
    if (c.qk_l2norm == call::QkNorm::kNone) return 1.0F;
    Sum sum(choices_, 1);
    sum.clear();
    for (const std::size_t i : order_) {
      const Row x(1, static_cast<float>(at(name, offset + static_cast<std::int64_t>(i))));
      sum.add(x[0], x.data());
    }
    const auto n2 = static_cast<double>(sum.total()[0]);
    const double n = std::sqrt(n2);
    const double divisor = c.qk_l2norm == call::QkNorm::kRsqrtSumEps  ? std::sqrt(n2 + c.l2_eps)
                           : c.qk_l2norm == call::QkNorm::kMaxNormEps ? std::fmax(n, c.l2_eps)
                                                                      : n + c.l2_eps;
    // Half of what the contract grants to the norm is left to the sum above.
    return choices_.off(1 / divisor, errors_.norm / 2, n2);
  }

  void run_head(const call::Sequence& s, std::int64_t head) {
    const auto V = static_cast<std::size_t>(dims_.V);
    state_.assign(static_cast<std::size_t>(dims_.K) * V, 0.0F);
    for (std::int64_t i = 0; i < dims_.K && s.start_block >= 0; ++i) {
      for (std::int64_t c = 0; c < dims_.V; ++c) {
        state_[static_cast<std::size_t>(i * dims_.V + c)] =
            static_cast<float>(at("initial_state", state_index(s.start_block, head, i, c)));
      }
    }
    auto snapshot = s.snapshots.begin();
    for (std::int64_t t = 0;; ++t) {
      for (; snapshot != s.snapshots.end() && snapshot->after == t; ++snapshot) {
        store(*snapshot, head);
      }
      if (t == s.token_count) break;
      step(s.first_token + t, head);
    }
  }

  void step(std::int64_t token, std::int64_t head) {
    const auto K = static_cast<std::size_t>(dims_.K);
    const auto V = static_cast<std::size_t>(dims_.V);
    const std::int64_t qk =
        (token * dims_.H + dims_.qk_head(record_.convention.head_map, head)) * dims_.K;
    std::shuffle(order_.begin(), order_.end(), random_);
    const auto scale = static_cast<float>(call::resolved_scale(record_.convention, dims_.K));
    const float rq = reciprocal_norm("q", qk) * scale;
    const float rk = reciprocal_norm("k", qk);
    const bool fold_norm = choices_.fold_norm;
    Row q(K), k(K), a(K);
    for (std::size_t i = 0; i < K; ++i) {
      q[i] = static_cast<float>(at("q", qk + static_cast<std::int64_t>(i))) * (fold_norm ? 1 : rq);
      k[i] = static_cast<float>(at("k", qk + static_cast<std::int64_t>(i))) * (fold_norm ? 1 : rk);
      const bool per_channel = record_.op == call::Op::kKda;
      a[i] = i == 0 || per_channel ? alpha(token, head, static_cast<std::int64_t>(i)) : a[0];
    }
    const bool fold_decay = choices_.fold_decay && record_.op != call::Op::kKda;

    Sum sum(choices_, V);
    sum.clear();
    for (const std::size_t i : order_) {
      float* z = &state_[i * V];
      for (std::size_t c = 0; c < V && !fold_decay; ++c) z[c] *= a[i];
      sum.add(k[i], z);
    }
    Row d = sum.total();
    const float b = beta(token, head);
    for (std::size_t c = 0; c < V; ++c) {
      float p = fold_norm ? d[c] * rk : d[c];
      if (fold_decay) p *= a[0];
      const auto v = static_cast<float>(
          at("v", (token * dims_.HV + head) * dims_.V + static_cast<std::int64_t>(c)));
      d[c] = b * (v - p);
      if (fold_norm) d[c] *= rk;
    }
    sum.clear();
    for (const std::size_t i : order_) {
      float* z = &state_[i * V];
      for (std::size_t c = 0; c < V; ++c) {
        const float before = fold_decay ? z[c] * a[0] : z[c];
        z[c] = choices_.multiply_add(k[i], d[c], before);
      }
      sum.add(q[i], z);
    }
    const Row& o = sum.total();
    for (std::size_t c = 0; c < V; ++c) {
      outputs_.at("o").set((token * dims_.HV + head) * dims_.V + static_cast<std::int64_t>(c),
                           static_cast<double>(fold_norm ? o[c] * rq : o[c]));
    }
  }

  const call::Record& record_;
  const call::Plan plan_;
  const call::Dims& dims_;
  const contract::FunctionErrors& errors_;
  const Choices choices_;
  std::vector<std::size_t> order_;
  std::mt19937_64 random_;
  std::map<std::string, std::vector<double>> inputs_;
  call::TensorMap outputs_;
  Row state_;  // [K][V]
};

}  // namespace

call::TensorMap run_fp32_kernel(const call::Record& record, const contract::FunctionErrors& errors,
                                call::DType state, std::uint64_t seed) {
  return Fp32Kernel(record, errors, state, seed).run();
}

}  // namespace goldenrule::delta::test
