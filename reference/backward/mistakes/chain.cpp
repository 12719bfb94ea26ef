// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/mistakes/chain.hpp"

#include <algorithm>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/backward/rule/evaluate.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {
namespace {

using call::Dims;
using call::Record;
using call::Tensor;
using call::TensorMap;

constexpr std::int64_t kSumTile = 64;  // tokens of a partial sum

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

Tensor blank(const Record& record, const Dims& d, const std::string& name) {
  return {call::DType::kF64, call::output_shape(record, d, name)};
}

class ChainRun {
 public:
  ChainRun(const Chain& chain, const Record& record, const TensorMap& plain)
      : chain_(chain),
        record_(record),
        c_(record.convention),
        plain_(plain),
        d_(call::validate(record)),
        inputs_(record),
        gates_(call::gate_channels(record, d_.K)) {}

  TensorMap run() {
    outputs_["dv"] = plain_.at("dv");
    if (plain_.contains("dinitial_state")) {
      outputs_["dinitial_state"] = plain_.at("dinitial_state");
    }
    double factor = 1.0;
    for (int i = 0; i < chain_.scales; ++i) factor *= call::resolved_scale(c_, d_.K);
    set_rows("dq", inputs_.q, factor, chain_.q_norm);
    set_rows("dk", inputs_.k, 1.0, chain_.k_norm);
    set_beta();
    if (c_.gate != call::Gate::kNone) set_gate();
    return std::move(outputs_);
  }

 private:
  // dq or dk of every token and head.
  void set_rows(const char* name, const delta::Input& x, double factor, Chain::NormAdjoint norm) {
    Tensor to = blank(record_, d_, name);
    const Tensor& parts = plain_.at(name);
    std::vector<double> row;
    std::vector<double> sum(place(d_.K));
    std::vector<double> dx(place(d_.K));
    for (std::int64_t h = 0; h < d_.H; ++h) {
      const std::vector<std::int64_t> heads = summed_heads(h);
      for (std::int64_t t = 0; t < d_.tokens; ++t) {
        for (std::int64_t i = 0; i < d_.K; ++i) {
          sum[place(i)] = factor * group_sum(parts, heads, t, i);
        }
        const std::int64_t first = (t * d_.H + h) * d_.K;
        norm(c_, x.read(first, d_.K, row), sum.data(), d_.K, dx.data());
        for (std::int64_t i = 0; i < d_.K; ++i) to.set(first + i, dx[place(i)]);
      }
    }
    outputs_[name] = std::move(to);
  }

  [[nodiscard]] std::vector<std::int64_t> summed_heads(std::int64_t h) const {
    if (chain_.group != GroupSum::kOtherMap) return heads_of_group(record_, d_, h);
    Record other;
    const bool grouped = c_.head_map == call::HeadMap::kGrouped;
    other.convention.head_map = grouped ? call::HeadMap::kTiled : call::HeadMap::kGrouped;
    return heads_of_group(other, d_, h);
  }

  [[nodiscard]] double group_sum(const Tensor& parts, const std::vector<std::int64_t>& heads,
                                 std::int64_t t, std::int64_t i) const {
    const auto part = [&](std::int64_t head) { return parts[(t * d_.HV + head) * d_.K + i]; };
    if (chain_.group == GroupSum::kLast) return part(heads.back());
    const bool rounds = chain_.group == GroupSum::kRounded;
    double sum = 0.0;
    for (const std::int64_t head : heads) {
      sum += rounds ? call::round_to(call::DType::kBF16, part(head)) : part(head);
      if (rounds) sum = call::round_to(call::DType::kBF16, sum);
    }
    return chain_.group == GroupSum::kMean ? sum / static_cast<double>(heads.size()) : sum;
  }

  void set_beta() {
    const std::string name = beta_output(c_);
    Tensor to = blank(record_, d_, name);
    const Tensor& from = plain_.at("dbeta");
    for (std::int64_t i = 0; i < to.size(); ++i) {
      const double b = inputs_.b[place(i)];
      double dbeta = from[i];
      if (chain_.dbeta_rounded) dbeta = call::round_to(call::DType::kBF16, dbeta);
      if (chain_.dbeta_over_beta) {
        const double beta = delta::beta_value<double>(c_.beta, b);
        dbeta = dbeta * beta / beta;
      }
      to.set(i, silenced(chain_.beta(c_.beta, b), dbeta));
    }
    outputs_[name] = std::move(to);
  }

  // Whether the gates of a value head at token t of `tokens` are in the sums of the parameters.
  [[nodiscard]] bool is_summed(const Sequence& tokens, bool last, std::int64_t t,
                               std::int64_t head) const {
    switch (chain_.parameters) {
      case ParameterSum::kLastSequence:
        return last;
      case ParameterSum::kLastTile:
        return t >= (tokens.count - 1) / kSumTile * kSumTile;
      case ParameterSum::kLastHead:
        return heads_of_group(record_, d_, d_.qk_head(c_.head_map, head)).back() == head;
      case ParameterSum::kLastChannel:
      case ParameterSum::kAll:
        break;
    }
    return true;
  }

  [[nodiscard]] double gate_factor() const {
    if (chain_.dg == GateFactor::kLn2) return std::numbers::ln2;
    return chain_.dg == GateFactor::kLog2E ? std::numbers::log2e : 1.0;
  }

  [[nodiscard]] double product(double slope, double dg) const {
    return chain_.silences ? silenced(slope, dg) : slope * dg;
  }

  struct Sums {
    std::vector<double> rate, bias;
  };

  // The gates of one token and value head.
  void set_token(std::int64_t row, bool summed, Tensor& to, Sums& sums) const {
    const std::int64_t head = call::gate_head(c_, d_, row % d_.HV);
    const double A_log = inputs_.A_log.empty() ? 0.0 : inputs_.A_log[place(head)];
    for (std::int64_t i = 0; i < gates_; ++i) {
      const std::int64_t at = row * gates_ + i;
      const std::size_t bias = place(head * gates_ + i);
      const double x = inputs_.gate_input[place(at)];
      const double shift = inputs_.dt_bias.empty() ? 0.0 : inputs_.dt_bias[bias];
      double dg = (*dg_)[at] * gate_factor();
      if (chain_.dg_over_alpha) dg /= delta::gate<double>(c_, x, A_log, shift).alpha;
      const GateSlopes<double> slopes = chain_.gate(c_, x, A_log, shift);
      const double da = product(slopes.input.value, dg);
      to.set(at, da);
      if (!summed) continue;
      const bool stored = chain_.bias_from_stored && call::has_logit_gate(c_);
      if (!sums.bias.empty()) {
        sums.bias[bias] += stored ? call::round_to(record_.inputs.at("a").dtype(), da) : da;
      }
      const bool channel = chain_.parameters != ParameterSum::kLastChannel || i + 1 == gates_;
      if (sums.rate.empty() || !channel) continue;
      sums.rate[place(head)] += product(slopes.amplitude.value, dg);
    }
  }

  void set_gate() {
    dg_ = &plain_.at("dg");
    Tensor to = blank(record_, d_, gate_output(c_));
    const std::int64_t heads = c_.gate_head == call::GateHead::kV ? d_.HV : d_.H;
    Sums sums;
    if (!inputs_.A_log.empty()) sums.rate.assign(place(heads), 0.0);
    if (!inputs_.dt_bias.empty()) sums.bias.assign(place(heads * gates_), 0.0);
    for (const Sequence& tokens : sequences_of(record_, d_)) {
      const bool last = tokens.first + tokens.count == d_.tokens;
      for (std::int64_t t = 0; t < tokens.count; ++t) {
        for (std::int64_t head = 0; head < d_.HV; ++head) {
          set_token((tokens.first + t) * d_.HV + head, is_summed(tokens, last, t, head), to, sums);
        }
      }
    }
    outputs_[gate_output(c_)] = std::move(to);
    const auto store = [&](const char* name, const std::vector<double>& values) {
      if (values.empty()) return;
      outputs_[name] = Tensor(call::DType::kF64, call::output_shape(record_, d_, name), values);
    };
    store("dA_log", sums.rate);
    store("ddt_bias", sums.bias);
  }

  const Chain& chain_;
  const Record& record_;
  const call::Convention& c_;
  const TensorMap& plain_;
  Dims d_;
  delta::CallInputs inputs_;
  std::int64_t gates_;
  const Tensor* dg_ = nullptr;
  TensorMap outputs_;
};

// What the lanes of a call are prepared from its inputs, by token and value head.
struct Prepared {
  std::vector<double> q, k, g, beta;
};

Prepared prepared(const Record& record, const Dims& d, std::int64_t gates) {
  Prepared all{std::vector<double>(place(d.tokens * d.HV * d.K)), {}, {}, {}};
  all.k = all.q;
  all.g.resize(place(d.tokens * d.HV * gates));
  all.beta.resize(place(d.tokens * d.HV));
  const delta::CallInputs inputs(record);
  const bool by_alpha = record.convention.gate == call::Gate::kLinear;
  for (const Sequence& tokens : sequences_of(record, d)) {
    for (std::int64_t head = 0; head < d.HV; ++head) {
      const auto lane =
          delta::prepare_lane<double>(record, d, inputs, tokens.first, tokens.count, head);
      const std::vector<double>& gate = by_alpha ? lane.alpha : lane.log_alpha;
      for (std::int64_t t = 0; t < tokens.count; ++t) {
        const std::int64_t row = (tokens.first + t) * d.HV + head;
        std::copy_n(lane.q_row(t), d.K, all.q.data() + row * d.K);
        std::copy_n(lane.k_row(t), d.K, all.k.data() + row * d.K);
        std::copy_n(gate.data() + t * gates, gates, all.g.data() + row * gates);
        all.beta[place(row)] = lane.beta[place(t)];
      }
    }
  }
  return all;
}

}  // namespace

void right_norm(const call::Convention& c, const double* x, const double* dy, std::int64_t K,
                double* dx) {
  std::vector<double> radii(place(K));
  norm_adjoint<double>(c, x, dy, K, 0.0, dx, radii.data());
}

double right_beta(call::BetaForm form, double b) { return beta_slope<double>(form, b).value; }

Record plain_call(const Record& record) {
  const Dims d = call::validate(record);
  const std::int64_t gates = call::gate_channels(record, d.K);
  const Prepared all = prepared(record, d, gates);
  Record plain = calls::without_outputs(record);
  for (const char* name : {"a", "A_log", "dt_bias", "g", "b", "beta"}) plain.inputs.erase(name);
  const auto set = [&](const char* name, const std::vector<double>& values, call::Shape shape) {
    plain.inputs[name] = Tensor(call::DType::kF64, std::move(shape), values);
  };
  call::Convention& c = plain.convention;
  c.qk_l2norm = call::QkNorm::kNone;
  c.scale = 1.0;
  c.head_map = call::HeadMap::kGrouped;
  c.gate_head = call::GateHead::kV;
  c.beta = call::BetaForm::kDirect;
  set("q", all.q, {d.tokens, d.HV, d.K});
  set("k", all.k, {d.tokens, d.HV, d.K});
  set("beta", all.beta, {d.tokens, d.HV});
  if (c.gate == call::Gate::kNone) return plain;
  if (c.gate != call::Gate::kLinear) c.gate = call::Gate::kLog;
  set("g", all.g, record.inputs.at(has_logit_gate(record.convention) ? "a" : "g").shape());
  return plain;
}

TensorMap through(const Chain& chain, const Record& record, const TensorMap& plain) {
  return ChainRun(chain, record, plain).run();
}

}  // namespace goldenrule::backward
