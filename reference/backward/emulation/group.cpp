// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fixtures/call/operation.hpp"
#include "reference/backward/emulation/kernel_group.hpp"

namespace goldenrule::backward {
namespace {

using call::Convention;
using contract::FunctionErrors;

constexpr double kFp32 = contract::kFp32;

// What sigma (1 - sigma) loses in fp32: nothing below 0, where sigma is small itself; an ulp of 1
// above, and all of it once 1 + e^-z is 1.
double lost_by_saturation(double z) {
  if (!(z > 0.0)) return 0.0;
  const double left = std::exp(-z);
  return left < kFp32 / 2 ? left : 2 * kFp32;
}

// By how much a kernel's slopes of a gate may be off, absolutely.
GateChain gate_chain(const Convention& c, const FunctionErrors& f, double x, double A_log,
                     double dt_bias) {
  const GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  GateChain chain{.input = slopes.input.value, .amplitude = slopes.amplitude.value};
  if (!call::has_logit_gate(c)) return chain;
  const bool bounded = c.gate == call::Gate::kBounded;
  const double E = std::exp(A_log);
  const double z = (bounded ? E : c.softplus_beta) * (x + dt_bias);
  const double of_z = std::fabs(z) * (f.logit + (bounded ? f.exp : 0.0));
  const double relative = of_z + f.exp + f.sigmoid + 4 * kFp32;
  chain.input_error = delta::weighted(std::fabs(chain.input), relative);
  chain.amplitude_error = delta::weighted(std::fabs(chain.amplitude), relative + f.exp);
  if (!bounded) {
    chain.amplitude_error += E * f.softplus;
    return chain;
  }
  const double lost = lost_by_saturation(z) * std::fabs(c.lower_bound);
  chain.input_error += lost * E;
  chain.amplitude_error += delta::weighted(lost, std::fabs(z));
  return chain;
}

// The chain of every gate of lane `lane` of a group, [tokens, gates].
std::vector<GateChain> gate_chains(const call::Record& record, const call::Dims& dims,
                                   const FunctionErrors& f, const delta::CallInputs& inputs,
                                   const Group& group, std::size_t lane) {
  const Convention& c = record.convention;
  std::vector<GateChain> chains;
  if (c.gate == call::Gate::kNone) return chains;
  const std::int64_t gates = group.lanes[lane].gates;
  const std::int64_t head = group.heads[lane];
  const std::int64_t of = call::gate_head(c, dims, head);
  const double A_log = inputs.A_log.empty() ? 0.0 : inputs.A_log[static_cast<std::size_t>(of)];
  std::vector<double> row;
  for (std::int64_t t = 0; t < group.tokens.count; ++t) {
    const std::int64_t first = ((group.tokens.first + t) * dims.HV + head) * gates;
    const double* x = inputs.gate_input.read(first, gates, row);
    for (std::int64_t i = 0; i < gates; ++i) {
      const double shift =
          inputs.dt_bias.empty() ? 0.0 : inputs.dt_bias[static_cast<std::size_t>(of * gates + i)];
      chains.push_back(gate_chain(c, f, x[i], A_log, shift));
    }
  }
  return chains;
}

}  // namespace

double beta_slope_error(call::BetaForm form, const FunctionErrors& f, double b) {
  if (form == call::BetaForm::kDirect) return 0.0;
  const double most = form == call::BetaForm::kSigmoid2 ? 2.0 : 1.0;
  return std::fabs(beta_slope<double>(form, b).value) *
             (2 * f.sigmoid + 4 * kFp32 + std::fabs(b) * f.logit) +
         most * lost_by_saturation(b);
}

Group make_group(const call::Record& record, const call::Dims& dims,
                 const contract::Contract& contract, std::int64_t sequence, const Sequence& tokens,
                 std::int64_t qk_head) {
  Group group;
  group.sequence = sequence;
  group.qk_head = qk_head;
  group.tokens = tokens;
  group.heads = heads_of_group(record, dims, qk_head);
  const delta::CallInputs inputs(record);
  for (const std::int64_t head : group.heads) {
    group.lanes.push_back(
        delta::prepare_lane<double>(record, dims, inputs, tokens.first, tokens.count, head));
    group.inputs.push_back(lane_inputs(record, dims, sequence, tokens, head));
    group.gates.push_back(
        gate_chains(record, dims, contract.functions, inputs, group, group.lanes.size() - 1));
  }
  return group;
}

std::vector<Group> groups_of(const call::Record& record, const call::Dims& dims,
                             const contract::Contract& contract) {
  std::vector<Group> groups;
  const std::vector<Sequence> sequences = sequences_of(record, dims);
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    for (std::int64_t h = 0; h < dims.H && sequences[n].count > 0; ++h) {
      groups.push_back(
          make_group(record, dims, contract, static_cast<std::int64_t>(n), sequences[n], h));
    }
  }
  return groups;
}

}  // namespace goldenrule::backward
