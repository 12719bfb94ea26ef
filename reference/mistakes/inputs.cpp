// SPDX-License-Identifier: Apache-2.0
#include "reference/mistakes/inputs.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/rule/gate.hpp"
#include "reference/rule/lane.hpp"

namespace goldenrule::mistakes {
namespace {

double value_or(const rule::Input& values, std::int64_t i, double otherwise) {
  return values.empty() ? otherwise : values[static_cast<std::size_t>(i)];
}

// Visits every alpha of the call in storage order of g.
template <class F>
void for_each_gate(const call::Record& record, F&& f) {
  const call::Dims d = call::validate(record);
  const call::Convention& c = record.convention;
  const rule::CallInputs inputs(record);
  const std::int64_t channels = call::gate_channels(record, d.K);
  GatePlace p;
  for (p.token = 0; p.token < d.tokens; ++p.token) {
    for (p.head = 0; p.head < d.HV; ++p.head) {
      const std::int64_t gate_head =
          c.gate_head == call::GateHead::kV ? p.head : d.qk_head(c.head_map, p.head);
      const double A_log = value_or(inputs.A_log, gate_head, 0.0);
      p.amplitude = std::exp(A_log);
      for (p.channel = 0; p.channel < channels; ++p.channel) {
        p.input = value_or(inputs.gate_input, (p.token * d.HV + p.head) * channels + p.channel, 0);
        const double bias = value_or(inputs.dt_bias, gate_head * channels + p.channel, 0.0);
        const auto value = rule::gate<double>(c, p.input, A_log, bias);
        p.logit = p.input + bias;
        p.alpha = value.alpha;
        p.log_alpha = value.exact ? std::log(value.alpha)
                                  : std::copysign(value.log_alpha, value.alpha > 1.0 ? 1.0 : -1.0);
        f(p);
      }
    }
  }
}

}  // namespace

call::Record without_outputs(const call::Record& record) {
  return {.op = record.op,
          .mode = record.mode,
          .convention = record.convention,
          .source = {},
          .contract = {},
          .case_line = {},
          .inputs = record.inputs,
          .outputs = {}};
}

void change_input(call::Record& record, const char* name,
                  const std::function<double(std::int64_t, double)>& f) {
  call::Tensor& tensor = record.inputs.at(name);
  std::vector<double> values = tensor.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = f(static_cast<std::int64_t>(i), values[i]);
  }
  tensor = call::Tensor(call::DType::kF64, tensor.shape(), values);
}

call::Record with_alpha(const call::Record& record,
                        const std::function<double(const GatePlace&)>& f) {
  std::vector<double> alphas;
  for_each_gate(record, [&](const GatePlace& p) { alphas.push_back(f(p)); });
  call::Record changed = without_outputs(record);
  const call::Shape shape = record.inputs.at(has_logit_gate(record) ? "a" : "g").shape();
  for (const char* name : {"a", "A_log", "dt_bias", "g"}) changed.inputs.erase(name);
  const bool has_logarithms = std::ranges::all_of(alphas, [](double x) { return x >= 0.0; });
  if (has_logarithms && record.convention.gate != call::Gate::kLinear) {
    for (double& x : alphas) x = std::log(x);
    changed.convention.gate = call::Gate::kLog;
  } else {
    changed.convention.gate = call::Gate::kLinear;
  }
  changed.inputs["g"] = call::Tensor(call::DType::kF64, shape, alphas);
  return changed;
}

std::vector<double> all_alphas(const call::Record& record) {
  std::vector<double> alphas;
  for_each_gate(record, [&](const GatePlace& p) { alphas.push_back(p.alpha); });
  return alphas;
}

call::Record with_beta(const call::Record& record, const std::function<double(double, double)>& f) {
  call::Record changed = without_outputs(record);
  const call::BetaForm form = record.convention.beta;
  const call::Tensor given = record.inputs.at(form == call::BetaForm::kDirect ? "beta" : "b");
  std::vector<double> values = given.to_doubles();
  for (double& x : values) x = f(x, rule::beta_value<double>(form, x));
  for (const char* name : {"b", "beta"}) changed.inputs.erase(name);
  const bool has_logits = std::ranges::all_of(values, [](double x) { return x > 0.0 && x < 1.0; });
  if (has_logits && form != call::BetaForm::kDirect) {
    for (double& x : values) x = std::log(x / (1.0 - x));
    changed.inputs["b"] = call::Tensor(call::DType::kF64, given.shape(), values);
    changed.convention.beta = call::BetaForm::kSigmoid;
  } else {
    changed.inputs["beta"] = call::Tensor(call::DType::kF64, given.shape(), values);
    changed.convention.beta = call::BetaForm::kDirect;
  }
  return changed;
}

call::Record with_qk_heads(const call::Record& record,
                           const std::function<std::int64_t(std::int64_t)>& map) {
  const call::Dims d = call::validate(record);
  call::Record changed = without_outputs(record);
  // With a q/k head for every value head, gate heads must be spread alike.
  const bool gates_of_qk = record.convention.gate_head == call::GateHead::kQK;
  std::vector<std::int64_t> heads;
  std::vector<std::int64_t> gate_heads;
  for (std::int64_t j = 0; j < d.HV; ++j) {
    heads.push_back(map(j));
    gate_heads.push_back(d.qk_head(record.convention.head_map, j));
  }
  call::for_each_input(changed, d, [&](const auto& row, const auto& axes, call::Tensor& tensor) {
    const auto axis = call::find_axis(axes, call::Axis::kQkHead);
    if (!axis) return;
    tensor = call::take(tensor, *axis, row.has(call::Extent::kGateHeads) ? gate_heads : heads);
  });
  if (gates_of_qk) changed.convention.gate_head = call::GateHead::kV;
  changed.convention.head_map = call::HeadMap::kGrouped;
  return changed;
}

call::Record with_tokens(const call::Record& record, const std::vector<std::int64_t>& source) {
  const call::Dims d = call::validate(record);
  call::Record changed = without_outputs(record);
  const std::size_t rank = call::token_rank(record);
  call::for_each_input(changed, d, [&](const auto& row, const auto&, call::Tensor& tensor) {
    if (!row.is_per_token()) return;
    const call::Shape leading(tensor.shape().begin(),
                              tensor.shape().begin() + static_cast<std::ptrdiff_t>(rank));
    const call::Tensor rows = call::with_leading(std::move(tensor), rank, {d.tokens});
    tensor = call::with_leading(call::take(rows, 0, source), 1, leading);
  });
  return changed;
}

std::int64_t longest_sequence(const call::Record& record) {
  if (!is_prefill(record)) return call::validate(record).T;
  const std::vector<std::int64_t> bounds = record.inputs.at("cu_seqlens").to_integers();
  std::int64_t longest = 0;
  for (std::size_t n = 1; n < bounds.size(); ++n) {
    longest = std::max(longest, bounds[n] - bounds[n - 1]);
  }
  return longest;
}

}  // namespace goldenrule::mistakes
