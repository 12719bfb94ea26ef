// SPDX-License-Identifier: Apache-2.0
#include "reference/relations/calls.hpp"

#include <algorithm>
#include <cstring>

#include "reference/mistakes/inputs.hpp"
#include "reference/relations/trial.hpp"

namespace goldenrule::relations {
namespace {

call::Tensor reshaped(const call::Tensor& tensor, call::Shape shape) {
  call::Tensor result(tensor.dtype(), std::move(shape));
  std::ranges::copy(tensor.bytes(), result.bytes().begin());
  return result;
}

// The token axes of an input, `rank` of them, become `leading`.
call::Tensor with_leading(const call::Tensor& tensor, std::size_t rank, call::Shape leading) {
  leading.insert(leading.end(), tensor.shape().begin() + static_cast<std::ptrdiff_t>(rank),
                 tensor.shape().end());
  return reshaped(tensor, std::move(leading));
}

call::Tensor integers(call::DType type, call::Shape shape,
                      const std::vector<std::int64_t>& values) {
  call::Tensor tensor(type, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  }
  return tensor;
}

call::Tensor bounds_of(call::DType type, const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) bounds.push_back(bounds.back() + count);
  return integers(type, {std::ssize(bounds)}, bounds);
}

}  // namespace

call::Tensor take(const call::Tensor& tensor, std::size_t axis,
                  std::span<const std::int64_t> source) {
  call::Shape shape = tensor.shape();
  const std::int64_t extent = shape[axis];
  shape[axis] = std::ssize(source);
  call::Tensor result(tensor.dtype(), shape);
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  std::size_t inner = call::info(tensor.dtype()).bytes;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= static_cast<std::size_t>(shape[i]);
  if (inner == 0) return result;
  std::byte* to = result.bytes().data();
  for (std::int64_t block = 0; block < outer; ++block) {
    for (const std::int64_t i : source) {
      std::memcpy(to, tensor.bytes().data() + static_cast<std::size_t>(block * extent + i) * inner,
                  inner);
      to += inner;
    }
  }
  return result;
}

void change(call::Tensor& tensor, const std::function<double(std::int64_t, double)>& f) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, f(i, tensor[i]));
}

call::Record with_explicit_slots(const call::Record& record) {
  call::Record changed = mistakes::without_outputs(record);
  const bool given = record.find_input("state_indices") != nullptr ||
                     record.find_input("ssm_state_indices") != nullptr;
  if (given || mistakes::is_prefill(record)) return changed;
  const std::int64_t rows = call::validate(record).rows;
  changed.inputs["state_indices"] = integers(call::DType::kI64, {rows}, identity(rows));
  // A slot that is used because no tensor says otherwise is never a pad.
  if (record.find_input("output_state_indices") == nullptr) changed.convention.pad_slot = -1;
  return changed;
}

call::Record select_rows(const call::Record& record, const call::Plan& plan,
                         std::span<const std::int64_t> rows) {
  call::Record changed = with_explicit_slots(record);
  if (!mistakes::is_prefill(record)) {
    for (auto& [name, tensor] : changed.inputs) {
      const bool shared = name == "A_log" || name == "dt_bias" || name == "initial_state";
      if (!shared) tensor = take(tensor, 0, rows);
    }
    return changed;
  }
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> counts;
  for (const std::int64_t row : rows) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(row)];
    for (std::int64_t t = 0; t < s.token_count; ++t) tokens.push_back(s.first_token + t);
    counts.push_back(s.token_count);
  }
  for (auto& [name, tensor] : changed.inputs) {
    if (name == "cu_seqlens") {
      tensor = bounds_of(tensor.dtype(), counts);
    } else if (name == "initial_state") {
      tensor = take(tensor, 0, rows);
    } else if (name != "A_log" && name != "dt_bias") {
      tensor = take(tensor, 0, tokens);
    }
  }
  return changed;
}

call::Record stretch_call(const call::Record& record, const call::Plan& plan, call::Mode mode,
                          std::span<const Stretch> stretches, const call::Tensor& states) {
  call::Record part = mistakes::without_outputs(record);
  part.mode = mode;
  part.convention.disable_state_update = 0;
  part.convention.pad_slot = -1;
  part.inputs.clear();
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> blocks;
  for (const Stretch& s : stretches) {
    const std::int64_t first =
        plan.sequences[static_cast<std::size_t>(s.sequence)].first_token + s.begin;
    for (std::int64_t t = 0; t < s.count; ++t) tokens.push_back(first + t);
    counts.push_back(s.count);
    blocks.push_back(s.sequence);
  }
  for (const char* name : kTokenInputs) {
    const call::Tensor* given = record.find_input(name);
    if (given == nullptr) continue;
    const call::Tensor flat = with_leading(*given, token_rank(record), {plan.dims.tokens});
    part.inputs[name] = take(flat, 0, tokens);
    if (mode != call::Mode::kPrefill) {
      part.inputs[name] =
          with_leading(part.inputs[name], 1, {std::ssize(stretches), stretches.front().count});
    }
  }
  for (const char* name : {"A_log", "dt_bias"}) {
    const call::Tensor* given = record.find_input(name);
    if (given != nullptr) part.inputs[name] = *given;
  }
  if (mode == call::Mode::kPrefill) {
    part.inputs["cu_seqlens"] = bounds_of(call::DType::kI64, counts);
  }
  part.inputs["initial_state"] = take(states, 0, blocks);
  return part;
}

}  // namespace goldenrule::relations
