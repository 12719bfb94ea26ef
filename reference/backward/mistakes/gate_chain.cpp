// SPDX-License-Identifier: Apache-2.0
//
// Mistakes between dg, the gradient by log alpha, and the gradients of what the gate is made of: a,
// A_log and dt_bias.
#include <array>
#include <cmath>
#include <limits>

#include "fixtures/call/operation.hpp"
#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::Convention;
using call::Gate;
using call::Record;
using call::TensorMap;

constexpr double kLargestExponent = 88.73;  // of fp32's exp

// What the gate's sigmoid is taken of.
double sigmoid_input(const Convention& c, double x, double A_log, double dt_bias) {
  const double logit = x + dt_bias;
  return c.gate == Gate::kSoftplus ? c.softplus_beta * logit : std::exp(A_log) * logit;
}

// Whether that of some gate of the call is as `which` says.
template <class F>
bool any_gate(const Record& r, F&& which) {
  const call::Dims d = call::validate(r);
  const delta::CallInputs inputs(r);
  const std::int64_t gates = call::gate_channels(r, d.K);
  for (std::int64_t i = 0; i < d.tokens * d.HV * gates; ++i) {
    const std::int64_t j = i / gates % d.HV;
    const auto head = static_cast<std::size_t>(call::gate_head(r.convention, d, j));
    const auto bias = head * static_cast<std::size_t>(gates) + static_cast<std::size_t>(i % gates);
    const double A_log = inputs.A_log.empty() ? 0.0 : inputs.A_log[head];
    const double shift = inputs.dt_bias.empty() ? 0.0 : inputs.dt_bias[bias];
    const double x = inputs.gate_input[static_cast<std::size_t>(i)];
    if (which(x, A_log, shift)) return true;
  }
  return false;
}

GateSlopes<double> without_bias(const Convention& c, double x, double A_log, double dt_bias) {
  GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  slopes.input = gate_slopes<double>(c, x, A_log, 0.0).input;
  return slopes;
}

bool has_large_exponent(const Record& r) {
  return has_logit_gate(r) && any_gate(r, [&](double x, double A_log, double shift) {
           return sigmoid_input(r.convention, x, A_log, shift) > kLargestExponent;
         });
}
GateSlopes<double> overflowing(const Convention& c, double x, double A_log, double dt_bias) {
  GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  if (sigmoid_input(c, x, A_log, dt_bias) > kLargestExponent) {
    slopes.input.value = std::numeric_limits<double>::quiet_NaN();
  }
  return slopes;
}

bool has_bent_softplus(const Record& r) {
  constexpr double kStraight = 5.0;  // where the slope is 1 to 7e-3
  if (!has_logit_gate(r) || r.convention.gate != Gate::kSoftplus) return false;
  return any_gate(r, [&](double x, double A_log, double shift) {
    const double z = sigmoid_input(r.convention, x, A_log, shift);
    return z > 0.0 && z <= std::min(r.convention.softplus_threshold, kStraight);
  });
}
GateSlopes<double> straight_above_zero(const Convention& c, double x, double A_log,
                                       double dt_bias) {
  Convention changed = c;
  changed.softplus_threshold = 0.0;
  GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  slopes.input = gate_slopes<double>(changed, x, A_log, dt_bias).input;
  return slopes;
}

bool has_bounded_rate(const Record& r) {
  return has_rate(r) && r.convention.gate == Gate::kBounded;
}
GateSlopes<double> rate_by_gate(const Convention& c, double x, double A_log, double dt_bias) {
  GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  slopes.amplitude.value = delta::gate<double>(c, x, A_log, dt_bias).log_alpha;
  return slopes;
}

bool has_scaling_rate(const Record& r) {
  if (!has_rate(r)) return false;
  const std::vector<double> rates = r.inputs.at("A_log").to_doubles();
  return std::ranges::any_of(rates, [](double x) { return x != 0.0; });
}
GateSlopes<double> rate_unscaled(const Convention& c, double x, double A_log, double dt_bias) {
  GateSlopes<double> slopes = gate_slopes<double>(c, x, A_log, dt_bias);
  slopes.amplitude.value /= std::exp(A_log);
  return slopes;
}

bool has_parameters(const Record& r) { return has_rate(r) || has_bias(r); }
// A sequence before the last one has a gate with a gradient.
bool has_several_sequences(const Record& r) {
  if (!has_parameters(r)) return false;
  const call::Dims d = call::validate(r);
  return std::ranges::any_of(sequences_of(r, d), [&](const Sequence& s) {
    return s.first + s.count < d.tokens && s.count > (has_start(r) ? 0 : 1);
  });
}
bool has_several_tiles(const Record& r) { return has_parameters(r) && has_chunks(r); }
bool has_rate_of_channels(const Record& r) {
  return has_rate(r) && call::gate_channels(r, call::validate(r).K) > 1;
}
bool has_shared_parameters(const Record& r) {
  return has_parameters(r) && has_groups(r) && r.convention.gate_head == call::GateHead::kQK;
}
bool has_stored_bias_terms(const Record& r) {
  if (!has_bias(r)) return false;
  const call::DType type = r.inputs.at("a").dtype();
  return type == call::DType::kBF16 || type == call::DType::kF16;
}

bool has_bias_to_drop(const Record& r) {
  return has_bias(r) && changes_input(r, "dt_bias", [](double) { return 0.0; });
}
bool has_bias_to_round(const Record& r) {
  return has_bias(r) && changes_input(r, "dt_bias", to_bf16);
}
TensorMap bias_bf16(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "dt_bias", [](std::int64_t, double x) { return to_bf16(x); });
  return kernel(changed);
}

bool has_log2_gate(const Record& r) { return has_gate(r) && r.convention.gate == Gate::kLog2; }

constexpr calls::Meant kNaturalLog[] = {{"gate", "log2", "log"}};

constexpr std::string_view kSlope = "Gradients of the gate's inputs";
constexpr std::string_view kParameters = "Gradients of A_log and dt_bias";

template <auto change>
constexpr calls::Mistake chain_row(std::string_view name, std::string_view group,
                                   std::string_view meaning, bool (*applies)(const Record&),
                                   std::string_view reported = {}, bool rounds = false,
                                   std::span<const calls::Meant> meant = {}) {
  return {.name = name,
          .group = group,
          .meaning = meaning,
          .applies = applies,
          .commit = commit_chain<change>,
          .meant = meant,
          .rounds = rounds,
          .reported = reported};
}

constexpr std::array kGateChainMistakes{
    chain_row<[](Chain& c) { c.dg = GateFactor::kLog2E; }>(
        "dg_ln2_missing", kSlope, "dg of a gate that is a log2 lacks the factor ln 2",
        has_log2_gate, "", false, kNaturalLog),
    chain_row<[](Chain& c) { c.dg = GateFactor::kLn2; }>(
        "dg_ln2_twice", kSlope, "dg has the factor ln 2 once too often", has_log_gate),
    chain_row<[](Chain& c) { c.dg_over_alpha = true; }>(
        "dg_divided_by_alpha", kSlope, "dg is the gradient by alpha, not by log alpha",
        has_log_gate, "ms-swift #8366"),
    chain_row<[](Chain& c) { c.gate = without_bias; }>(
        "gate_slope_without_bias", kSlope, "the slope of the gate is taken at a, without dt_bias",
        has_bias_to_drop),
    calls::Mistake{.name = "dt_bias_bf16",
                   .group = kSlope,
                   .meaning = "dt_bias is rounded to bf16",
                   .applies = has_bias_to_round,
                   .commit = bias_bf16,
                   .rounds = calls::kRounds,
                   .reported = "FlashInfer #4726"},
    chain_row<[](Chain& c) {
      c.gate = overflowing;
      c.silences = false;
    }>("saturated_gate_nan", kSlope,
       "the slope of a saturated gate is e^z / (1 + e^z) in fp32, which overflows",
       has_large_exponent, "flash-linear-attention #1007, unsloth-zoo #582"),
    chain_row<[](Chain& c) { c.gate = straight_above_zero; }>(
        "softplus_slope_threshold", kSlope,
        "the slope of softplus is 1 from 0 on, where it is sigmoid up to the threshold",
        has_bent_softplus),
    chain_row<[](Chain& c) { c.gate = rate_by_gate; }>(
        "rate_gradient_by_gate", kParameters,
        "dA_log of a bounded gate sums g dg, as that of softplus does", has_bounded_rate),
    chain_row<[](Chain& c) { c.gate = rate_unscaled; }>("rate_gradient_unscaled", kParameters,
                                                        "dA_log lacks the factor exp(A_log)",
                                                        has_scaling_rate),
    chain_row<[](Chain& c) { c.parameters = ParameterSum::kLastSequence; }>(
        "parameter_gradient_of_one_sequence", kParameters,
        "dA_log and ddt_bias are those of the last sequence", has_several_sequences),
    chain_row<[](Chain& c) { c.parameters = ParameterSum::kLastTile; }>(
        "parameter_gradient_of_one_tile", kParameters,
        "dA_log and ddt_bias have of each sequence what its last tile of 64 tokens gives",
        has_several_tiles),
    chain_row<[](Chain& c) { c.parameters = ParameterSum::kLastChannel; }>(
        "rate_gradient_of_one_channel", kParameters, "dA_log is not summed over the key channels",
        has_rate_of_channels),
    chain_row<[](Chain& c) { c.parameters = ParameterSum::kLastHead; }>(
        "gate_head_not_summed", kParameters,
        "parameters of a query/key head get the gradient of the last of its value heads",
        has_shared_parameters),
    chain_row<[](Chain& c) { c.bias_from_stored = true; }>(
        "ddt_bias_of_stored", kParameters, "ddt_bias sums da as it is stored, in the 16 bits of a",
        has_stored_bias_terms, "", calls::kRounds),
};

}  // namespace

std::span<const calls::Mistake> gate_chain_mistakes() { return kGateChainMistakes; }

}  // namespace goldenrule::backward
