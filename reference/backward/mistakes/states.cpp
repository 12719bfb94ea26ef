// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in what a backward pass is given: the gradient of the final state, the states of other
// sequences, do, and conventions.
#include <array>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::Record;
using call::Tensor;
using call::TensorMap;

call::TensorMap state_gradient_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("dfinal_state");
  return kernel(changed);
}

bool has_start_gradient(const Record& r) {
  return call::validate(r).rows > 0 && (has_tokens(r) || has_state_gradient(r));
}
TensorMap start_gradient_zero(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  Tensor& dstart = outputs.at("dinitial_state");
  dstart = Tensor(call::DType::kF64, dstart.shape());
  return outputs;
}

bool has_tokens_and_state_gradient(const Record& r) {
  return has_tokens(r) && has_state_gradient(r);
}
TensorMap start_gradient_is_end(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  const Tensor& end = r.inputs.at("dfinal_state");
  outputs["dinitial_state"] = Tensor(call::DType::kF64, end.shape(), end.to_doubles());
  return outputs;
}

bool has_matrix_gradient(const Record& r) {
  const call::Dims d = call::validate(r);
  return has_start_gradient(r) && d.K > 1 && d.V > 1;
}
// The memory of the other layout, in the shape that is declared.
TensorMap start_gradient_transposed(const Record& r, const calls::Kernel& kernel) {
  TensorMap outputs = kernel(r);
  Tensor& dstart = outputs.at("dinitial_state");
  const std::vector<double> right = dstart.to_doubles();
  const std::int64_t rows = dstart.shape()[2];
  const std::int64_t columns = dstart.shape()[3];
  for (std::int64_t i = 0; i < dstart.size(); ++i) {
    const std::int64_t in_block = i % (rows * columns);
    const std::int64_t from = i - in_block + in_block % rows * columns + in_block / rows;
    dstart.set(i, right[static_cast<std::size_t>(from)]);
  }
  return outputs;
}

bool has_next_gradient(const Record& r) {
  const std::vector<Sequence> sequences = sequences_of(r, call::validate(r));
  if (sequences.size() < 2) return false;
  return has_state_gradient(r) || std::any_of(sequences.begin() + 1, sequences.end(),
                                              [](const Sequence& s) { return s.count > 0; });
}
TensorMap next_gradient(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  const Tensor start = kernel(r).at("dinitial_state");
  const Tensor* end = r.find_input("dfinal_state");
  std::vector<double> values = start.to_doubles();
  const std::int64_t block = start.size() / start.shape()[0];
  for (std::int64_t i = 0; i < start.size(); ++i) {
    values[static_cast<std::size_t>(i)] =
        (end == nullptr ? 0.0 : (*end)[i]) + (i + block < start.size() ? start[i + block] : 0.0);
  }
  changed.inputs["dfinal_state"] = Tensor(call::DType::kF64, start.shape(), values);
  return kernel(changed);
}

bool has_other_starts(const Record& r) {
  return has_start(r) && has_tokens(r) && call::validate(r).rows > 1;
}
TensorMap neighbour_states(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  const Tensor given = r.inputs.at("initial_state");
  const std::int64_t block = given.size() / given.shape()[0];
  calls::change_input(changed, "initial_state", [&](std::int64_t i, double) {
    return given[(i + given.size() - block) % given.size()];
  });
  return kernel(changed);
}

bool has_f32_gradient(const Record& r) {
  return has_tokens(r) && r.inputs.at("do").dtype() == call::DType::kF32 &&
         changes_input(r, "do", to_bf16);
}
TensorMap gradient_bf16(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "do", [](std::int64_t, double x) { return to_bf16(x); });
  return kernel(changed);
}

bool has_other_heads(const Record& r) {
  const call::Dims d = call::validate(r);
  return has_groups(r) && d.H > 1;
}
TensorMap other_head_map(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  const bool grouped = r.convention.head_map == call::HeadMap::kGrouped;
  changed.convention.head_map = grouped ? call::HeadMap::kTiled : call::HeadMap::kGrouped;
  return kernel(changed);
}

constexpr calls::Meant kOtherLayout[] = {{"state_layout", "vk", "kv"},
                                         {"state_layout", "kv", "vk"}};
constexpr calls::Meant kOtherMap[] = {{"head_map", "grouped", "tiled"},
                                      {"head_map", "tiled", "grouped"}};

constexpr std::string_view kStates = "Gradients of the states";
constexpr std::string_view kGiven = "What a backward pass is given";
constexpr std::array kStateMistakes{
    calls::Mistake{"state_gradient_ignored", kStates, "the gradient of the final state is not read",
                   has_state_gradient, state_gradient_ignored},
    calls::Mistake{"dstart_missing", kStates, "the gradient of the initial state is 0",
                   has_start_gradient, start_gradient_zero},
    calls::Mistake{"dstart_missing", kStates,
                   "the gradient of the initial state is that of the final one",
                   has_tokens_and_state_gradient, start_gradient_is_end},
    calls::Mistake{"dstart_transposed", kStates,
                   "the gradient of the initial state is written in the other layout",
                   has_matrix_gradient, start_gradient_transposed, kOtherLayout},
    calls::Mistake{"dstate_of_next_sequence", kStates,
                   "the gradient at the beginning of a sequence is carried on into the sequence "
                   "that is packed before it",
                   has_next_gradient, next_gradient},
    calls::Mistake{.name = "states_of_neighbour",
                   .group = kStates,
                   .meaning = "the states of another sequence are read, those of the one before",
                   .applies = has_other_starts,
                   .commit = neighbour_states,
                   .reported = "cudnn-frontend #994, #1013"},
    calls::Mistake{"do_bf16",
                   kGiven,
                   "do is given in fp32 and read as bf16",
                   has_f32_gradient,
                   gradient_bf16,
                   {},
                   calls::kRounds},
    calls::Mistake{"backward_head_map", kGiven,
                   "value heads are mapped to q/k heads in the other order", has_other_heads,
                   other_head_map, kOtherMap},
};

}  // namespace

std::span<const calls::Mistake> state_mistakes() { return kStateMistakes; }

}  // namespace goldenrule::backward
