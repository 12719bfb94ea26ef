// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in what a backward pass writes, and where.
#include <array>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/delta/calls/rows.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;
using call::TensorMap;

// Sets the rows of `name` that the last chunks, where these are not full, have.
void set_tails(const Record& r, const std::string& name, double x, TensorMap& outputs) {
  if (!outputs.contains(name)) return;
  call::Tensor& tensor = outputs.at(name);
  const call::Dims d = call::validate(r);
  const std::int64_t row = tensor.size() / d.tokens;
  for (const Sequence& tokens : sequences_of(r, d)) {
    const std::int64_t full = tokens.count / kChunk * kChunk;
    for (std::int64_t i = full * row; i < tokens.count * row; ++i) {
      tensor.set(tokens.first * row + i, x);
    }
  }
}

TensorMap with_row_tails(const Record& r, const calls::Kernel& kernel, double x) {
  TensorMap outputs = kernel(r);
  for (const char* name : {"dq", "dk", "dv"}) set_tails(r, name, x, outputs);
  return outputs;
}
TensorMap garbage_row_tails(const Record& r, const calls::Kernel& kernel) {
  return with_row_tails(r, kernel, calls::kUnwritten);
}
TensorMap zero_row_tails(const Record& r, const calls::Kernel& kernel) {
  return with_row_tails(r, kernel, 0.0);
}

TensorMap with_scalar_tails(const Record& r, const calls::Kernel& kernel, double x) {
  TensorMap outputs = kernel(r);
  for (const std::string& name : {gate_output(r.convention), beta_output(r.convention)}) {
    set_tails(r, name, x, outputs);
  }
  return outputs;
}
TensorMap garbage_scalar_tails(const Record& r, const calls::Kernel& kernel) {
  return with_scalar_tails(r, kernel, calls::kUnwritten);
}
TensorMap zero_scalar_tails(const Record& r, const calls::Kernel& kernel) {
  return with_scalar_tails(r, kernel, 0.0);
}

bool has_gate_per_head(const Record& r) {
  return has_gate(r) && call::gate_channels(r, call::validate(r).K) == 1;
}
TensorMap gate_and_beta_exchanged(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  call::Tensor& gate = outputs.at(gate_output(r.convention));
  call::Tensor& beta = outputs.at(beta_output(r.convention));
  const call::Shape shape = gate.shape();
  std::swap(gate, beta);
  beta.reshape(gate.shape());
  gate.reshape(shape);
  return outputs;
}

TensorMap rows_exchanged(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  std::swap(outputs.at("dq"), outputs.at("dk"));
  return outputs;
}
TensorMap values_negated(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  calls::change(outputs.at("dv"), [](std::int64_t, double x) { return -x; });
  return outputs;
}
TensorMap rates_halved(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  calls::change(outputs.at("dA_log"), [](std::int64_t, double x) { return x / 2.0; });
  return outputs;
}

// A sequence whose gates have gradients.
bool has_gradients_of_gates(const Record& r, const Sequence& s) {
  return s.count > (has_start(r) ? 0 : 1);
}
// Three of them: what lacks one of two has the other alone (parameter_gradient_of_one_sequence).
bool has_three_of_bias(const Record& r) {
  const std::vector<Sequence> all = sequences_of(r, call::validate(r));
  return has_bias(r) && std::ranges::count_if(all, [&](const Sequence& s) {
                          return has_gradients_of_gates(r, s);
                        }) > 2;
}
// ddt_bias of the call without its last sequence that has some, or its first.
TensorMap bias_without(const Record& r, const calls::Kernel& kernel, bool last) {
  call::Plan plan;
  plan.dims = call::validate(r);
  std::vector<std::int64_t> rows;
  std::int64_t left_out = -1;
  for (const Sequence& s : sequences_of(r, plan.dims)) {
    call::Sequence& to = plan.sequences.emplace_back();
    to.first_token = s.first;
    to.token_count = s.count;
    const std::int64_t row = std::ssize(rows);
    if (has_gradients_of_gates(r, s) && (last || left_out < 0)) left_out = row;
    rows.push_back(row);
  }
  std::erase(rows, left_out);
  TensorMap outputs = kernel(r);
  outputs.at("ddt_bias") = kernel(calls::select_rows(r, plan, rows)).at("ddt_bias");
  return outputs;
}
TensorMap bias_without_last(const Record& r, const calls::Kernel& kernel) {
  return bias_without(r, kernel, true);
}
TensorMap bias_without_first(const Record& r, const calls::Kernel& kernel) {
  return bias_without(r, kernel, false);
}

constexpr std::string_view kWritten = "What a backward pass writes";
constexpr std::string_view kTails = "FlashQLA #28";
constexpr std::array kOutputMistakes{
    calls::Mistake{.name = "grad_tail_rows_unwritten",
                   .group = kWritten,
                   .meaning = "dq, dk and dv of a last chunk that is not full are not written",
                   .applies = has_tail,
                   .commit = garbage_row_tails,
                   .reported = kTails},
    calls::Mistake{.name = "grad_tail_rows_unwritten",
                   .group = kWritten,
                   .meaning = "dq, dk and dv of a last chunk that is not full are 0",
                   .applies = has_tail,
                   .commit = zero_row_tails,
                   .reported = kTails},
    calls::Mistake{.name = "grad_tail_gates_unwritten",
                   .group = kWritten,
                   .meaning = "the gradients of gate and beta are not written in a last chunk that "
                              "is not full",
                   .applies = has_tail,
                   .commit = garbage_scalar_tails,
                   .reported = kTails},
    calls::Mistake{.name = "grad_tail_gates_unwritten",
                   .group = kWritten,
                   .meaning = "the gradients of gate and beta are 0 in a last chunk that is not "
                              "full",
                   .applies = has_tail,
                   .commit = zero_scalar_tails,
                   .reported = kTails},
    calls::Mistake{.name = "dg_dbeta_exchanged",
                   .group = kWritten,
                   .meaning = "the gradients of gate and beta are returned in each other's place",
                   .applies = has_gate_per_head,
                   .commit = gate_and_beta_exchanged},
    calls::Mistake{.name = "dq_dk_exchanged",
                   .group = kWritten,
                   .meaning = "dq and dk are returned in each other's place",
                   .applies = has_tokens,
                   .commit = rows_exchanged},
    calls::Mistake{.name = "dv_negated",
                   .group = kWritten,
                   .meaning = "dv has the wrong sign",
                   .applies = has_tokens,
                   .commit = values_negated},
    calls::Mistake{.name = "rate_gradient_halved",
                   .group = kWritten,
                   .meaning = "dA_log is half of what it is",
                   .applies = has_rate,
                   .commit = rates_halved},
    calls::Mistake{.name = "bias_gradient_without_sequence",
                   .group = kWritten,
                   .meaning = "ddt_bias lacks what the last sequence gives",
                   .applies = has_three_of_bias,
                   .commit = bias_without_last},
    calls::Mistake{.name = "bias_gradient_without_sequence",
                   .group = kWritten,
                   .meaning = "ddt_bias lacks what the first sequence gives",
                   .applies = has_three_of_bias,
                   .commit = bias_without_first},
};

}  // namespace

std::span<const calls::Mistake> output_mistakes() { return kOutputMistakes; }

}  // namespace goldenrule::backward
