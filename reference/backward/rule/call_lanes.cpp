// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/call_lanes.hpp"

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::backward {

using call::Dims;
using call::Record;

std::vector<Sequence> sequences_of(const Record& record, const Dims& dims) {
  const std::vector<std::int64_t> bounds = call::token_bounds(record, dims);
  std::vector<Sequence> sequences;
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    sequences.push_back({bounds[n], bounds[n + 1] - bounds[n]});
  }
  return sequences;
}

std::vector<std::int64_t> heads_of_group(const Record& record, const Dims& dims, std::int64_t h) {
  std::vector<std::int64_t> heads;
  for (std::int64_t j = 0; j < dims.HV; ++j) {
    if (dims.qk_head(record.convention.head_map, j) == h) heads.push_back(j);
  }
  return heads;
}

LaneInputs lane_inputs(const Record& record, const Dims& d, std::int64_t sequence,
                       const Sequence& tokens, std::int64_t head) {
  LaneInputs inputs;
  inputs.V = d.V;
  inputs.by_alpha = record.convention.gate == call::Gate::kLinear;
  const auto values = [&](const char* name, std::vector<double>& to) {
    const delta::Input from(record.find_input(name));
    to.resize(static_cast<std::size_t>(tokens.count * d.V));
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      from.read(((tokens.first + t) * d.HV + head) * d.V, d.V, to.data() + t * d.V);
    }
  };
  const call::Strides strides = call::output_strides(record, d, "dinitial_state");
  const auto states = [&](const char* name, std::vector<double>& to) {
    const delta::Input from(record.find_input(name));
    if (from.empty()) return;
    for (std::int64_t i = 0; i < d.K; ++i) {
      for (std::int64_t c = 0; c < d.V; ++c) to.push_back(from[strides(sequence, head, i, c)]);
    }
  };
  values("v", inputs.v);
  values("do", inputs.output_gradient);
  states("initial_state", inputs.start);
  states("dfinal_state", inputs.state_gradient);
  return inputs;
}

std::string gate_output(const call::Convention& convention) {
  if (convention.gate == call::Gate::kNone) return "";
  return call::has_logit_gate(convention) ? "da" : "dg";
}

std::string beta_output(const call::Convention& convention) {
  return convention.beta == call::BetaForm::kDirect ? "dbeta" : "db";
}

}  // namespace goldenrule::backward
