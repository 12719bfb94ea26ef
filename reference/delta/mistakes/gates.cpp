// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/gates.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/operation.hpp"
#include "reference/delta/rule/gate.hpp"
#include "reference/delta/rule/lane.hpp"

namespace goldenrule::delta {
namespace {

double value_or(const Input& values, std::int64_t i, double otherwise) {
  return values.empty() ? otherwise : values[static_cast<std::size_t>(i)];
}

// Visits every alpha of the call in storage order of g.
template <class F>
void for_each_gate(const call::Record& record, F&& f) {
  const call::Dims d = call::validate(record);
  const call::Convention& c = record.convention;
  const CallInputs inputs(record);
  const std::int64_t channels = call::gate_channels(record, d.K);
  GatePlace p;
  for (p.token = 0; p.token < d.tokens; ++p.token) {
    for (p.head = 0; p.head < d.HV; ++p.head) {
      const std::int64_t gate_head = call::gate_head(c, d, p.head);
      const double A_log = value_or(inputs.A_log, gate_head, 0.0);
      p.amplitude = std::exp(A_log);
      for (p.channel = 0; p.channel < channels; ++p.channel) {
        p.input = value_or(inputs.gate_input, (p.token * d.HV + p.head) * channels + p.channel, 0);
        const double bias = value_or(inputs.dt_bias, gate_head * channels + p.channel, 0.0);
        const auto value = gate<double>(c, p.input, A_log, bias);
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

call::Record with_alpha(const call::Record& record,
                        const std::function<double(const GatePlace&)>& f) {
  std::vector<double> alphas;
  for_each_gate(record, [&](const GatePlace& p) { alphas.push_back(f(p)); });
  call::Record changed = calls::without_outputs(record);
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
  call::Record changed = calls::without_outputs(record);
  const call::BetaForm form = record.convention.beta;
  const call::Tensor given = record.inputs.at(form == call::BetaForm::kDirect ? "beta" : "b");
  std::vector<double> values = given.to_doubles();
  for (double& x : values) x = f(x, beta_value<double>(form, x));
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

}  // namespace goldenrule::delta
