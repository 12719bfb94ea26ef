// SPDX-License-Identifier: Apache-2.0
//
// What the tests read off a filled record, evaluated with libm: the fills' own arithmetic
// (portable_math) takes no part in judging them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "fixtures/cases/case.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::cases::test {

inline std::vector<double> input(const call::Record& record, const char* name) {
  return record.inputs.at(name).to_doubles();
}

/// Rows of the last axis: rows[r][i].
inline std::vector<std::vector<double>> rows(const call::Tensor& tensor) {
  const auto width = tensor.shape().back();
  std::vector<std::vector<double>> result(static_cast<std::size_t>(tensor.size() / width));
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    result[static_cast<std::size_t>(i / width)].push_back(tensor[i]);
  }
  return result;
}

inline double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

inline double cosine(const std::vector<double>& x, const std::vector<double>& y) {
  return dot(x, y) / std::sqrt(dot(x, x) * dot(y, y));
}

/// beta of every (token, value head).
inline std::vector<double> betas(const call::Record& record) {
  const bool direct = record.convention.beta == call::BetaForm::kDirect;
  std::vector<double> values = input(record, direct ? "beta" : "b");
  for (double& x : values) {
    if (!direct) x = 1 / (1 + std::exp(-x));
    if (record.convention.beta == call::BetaForm::kSigmoid2) x *= 2;
  }
  return values;
}

/// log alpha as the convention reads it, were the input `x` at flat index `i` of a or g.
inline double log_alpha_if(const call::Record& record, const call::Dims& dims, std::int64_t i,
                           double x) {
  const call::Convention& c = record.convention;
  const std::int64_t channels = record.op == call::Op::kKda ? dims.K : 1;
  const std::int64_t j = i / channels % dims.HV;
  const std::int64_t head = c.gate_head == call::GateHead::kV ? j : dims.qk_head(c.head_map, j);
  if (c.gate == call::Gate::kLog) return x;
  if (c.gate == call::Gate::kLog2) return x * std::log(2.0);
  if (c.gate == call::Gate::kLinear) return std::log(x);
  const double amplitude = std::exp(record.inputs.at("A_log")[head]);
  const double logit = x + record.inputs.at("dt_bias")[head * channels + i % channels];
  if (c.gate == call::Gate::kBounded) return c.lower_bound / (1 + std::exp(-amplitude * logit));
  const double scaled = c.softplus_beta * logit;
  const double softplus =
      scaled > c.softplus_threshold ? logit : std::log1p(std::exp(scaled)) / c.softplus_beta;
  return -amplitude * softplus;
}

inline const call::Tensor& gate_input(const call::Record& record) {
  const bool logits = record.convention.gate == call::Gate::kSoftplus ||
                      record.convention.gate == call::Gate::kBounded;
  return record.inputs.at(logits ? "a" : "g");
}

/// log alpha at every element of a or g.
inline std::vector<double> log_alphas(const call::Record& record) {
  const call::Tensor& gate = gate_input(record);
  const call::Dims dims = call::validate(record);
  std::vector<double> values;
  for (std::int64_t i = 0; i < gate.size(); ++i) {
    values.push_back(log_alpha_if(record, dims, i, gate[i]));
  }
  return values;
}

using goldenrule::cases::record_of;

}  // namespace goldenrule::cases::test
