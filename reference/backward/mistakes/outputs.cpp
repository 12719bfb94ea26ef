// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in what a backward pass writes, and where.
#include <array>
#include <limits>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;
using call::TensorMap;

constexpr double kGarbage = std::numeric_limits<double>::quiet_NaN();

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
  return with_row_tails(r, kernel, kGarbage);
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
  return with_scalar_tails(r, kernel, kGarbage);
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
};

}  // namespace

std::span<const calls::Mistake> output_mistakes() { return kOutputMistakes; }

}  // namespace goldenrule::backward
