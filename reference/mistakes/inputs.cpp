// SPDX-License-Identifier: Apache-2.0
#include "reference/mistakes/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/rule/gate.hpp"
#include "reference/rule/lane.hpp"

namespace goldenrule::mistakes {
namespace {

// Inputs with one row per token.
constexpr const char* kTokenInputs[] = {"q", "k", "v", "a", "g", "b", "beta"};

// Rows of `tensor`, whose leading axes hold `rows` of them, in the order of `source`.
call::Tensor gather(const call::Tensor& tensor, std::int64_t rows,
                    const std::vector<std::int64_t>& source) {
  call::Tensor gathered(tensor.dtype(), tensor.shape());
  if (rows == 0) return gathered;
  const std::size_t size = tensor.bytes().size() / static_cast<std::size_t>(rows);
  for (std::size_t r = 0; r < source.size(); ++r) {
    std::memcpy(gathered.bytes().data() + r * size,
                tensor.bytes().data() + static_cast<std::size_t>(source[r]) * size, size);
  }
  return gathered;
}

double value_or(const rule::Input& values, std::int64_t i, double otherwise) {
  return values.empty() ? otherwise : values[static_cast<std::size_t>(i)];
}

// Visits every alpha of the call in storage order of g.
template <class F>
void for_each_gate(const call::Record& record, F&& f) {
  const call::Dims d = call::validate(record);
  const call::Convention& c = record.convention;
  const rule::CallInputs inputs(record);
  const std::int64_t channels = gate_channels(record, d);
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
  for (const char* name : {"q", "k"}) {
    const call::Tensor& given = record.inputs.at(name);
    call::Shape shape = given.shape();
    shape[shape.size() - 2] = d.HV;
    call::Tensor spread(given.dtype(), shape);
    const std::size_t size = static_cast<std::size_t>(d.K) * call::info(given.dtype()).bytes;
    for (std::int64_t token = 0; token < d.tokens; ++token) {
      for (std::int64_t j = 0; j < d.HV; ++j) {
        std::memcpy(spread.bytes().data() + static_cast<std::size_t>(token * d.HV + j) * size,
                    given.bytes().data() + static_cast<std::size_t>(token * d.H + map(j)) * size,
                    size);
      }
    }
    changed.inputs[name] = std::move(spread);
  }
  // With a q/k head for every value head, gate heads must be spread alike.
  if (record.convention.gate_head == call::GateHead::kQK) {
    std::vector<std::int64_t> heads;
    for (std::int64_t j = 0; j < d.HV; ++j) {
      heads.push_back(d.qk_head(record.convention.head_map, j));
    }
    for (const char* name : {"A_log", "dt_bias"}) {
      const call::Tensor* given = record.find_input(name);
      if (given == nullptr) continue;
      call::Shape shape = given->shape();
      const auto width =
          static_cast<std::int64_t>(given->size() / std::max<std::int64_t>(shape[0], 1));
      shape[0] = d.HV;
      call::Tensor spread(given->dtype(), shape);
      for (std::int64_t j = 0; j < d.HV; ++j) {
        for (std::int64_t i = 0; i < width; ++i) {
          spread.set(j * width + i, (*given)[heads[static_cast<std::size_t>(j)] * width + i]);
        }
      }
      changed.inputs[name] = std::move(spread);
    }
    changed.convention.gate_head = call::GateHead::kV;
  }
  changed.convention.head_map = call::HeadMap::kGrouped;
  return changed;
}

call::Record with_tokens(const call::Record& record, const std::vector<std::int64_t>& source) {
  const call::Dims d = call::validate(record);
  call::Record changed = without_outputs(record);
  for (const char* name : kTokenInputs) {
    const auto it = changed.inputs.find(name);
    if (it != changed.inputs.end()) it->second = gather(it->second, d.tokens, source);
  }
  return changed;
}

std::int64_t gate_channels(const call::Record& record, const call::Dims& dims) {
  return record.op == call::Op::kKda && has_gate(record) ? dims.K : 1;
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

bool has_logit_gate(const call::Record& record) {
  return record.convention.gate == call::Gate::kSoftplus ||
         record.convention.gate == call::Gate::kBounded;
}

}  // namespace goldenrule::mistakes
