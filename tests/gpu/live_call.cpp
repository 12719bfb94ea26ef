// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/live_call.hpp"

#include <algorithm>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/random/philox.hpp"
#include "tools/gpu_run/attention_call.hpp"

namespace goldenrule::test {
namespace {

using call::Axis, call::Record, call::Tensor;

const call::TensorRow& row_of(const Record& record, const std::string& name) {
  const call::TensorRow* row = call::find_row(record, call::Group::kInput, name);
  return row != nullptr ? *row : *call::find_row(record, call::Group::kOutput, name);
}

/// Axes at the end without a gap between them: none where the last counts heads, and the whole
/// state where gaps are whole vectors, so that the fast kernels see them too.
std::size_t dense_axes(const std::vector<Axis>& axes, std::int64_t gap) {
  const bool state =
      call::find_axis(axes, call::axis::kKey) && call::find_axis(axes, call::axis::kValue);
  if (state) return gap % 8 == 0 ? 2 : 1;
  return axes.back() == call::axis::kValueHead || axes.back() == call::axis::kQkHead ? 0 : 1;
}

/// Slots outside the pool in the place of the pad slot, which mean the same.
void use_stray_slots(Record& record) {
  const std::int64_t slots = call::validate(record).slots;
  for (const char* name :
       {"state_indices", "output_state_indices", "ssm_state_indices", "checkpoint_state_indices"}) {
    const auto it = record.inputs.find(name);
    if (it == record.inputs.end()) continue;
    for (std::int64_t i = 0; i < it->second.size(); ++i) {
      if (it->second[i] != static_cast<double>(record.convention.pad_slot)) continue;
      it->second.set(i, static_cast<double>(i % 2 == 0 ? slots + i : -7 - i));
    }
  }
}

}  // namespace

void Layout::for_each_run(
    const std::function<void(std::size_t, std::size_t, std::size_t)>& f) const {
  std::size_t outer = shape.size();
  std::int64_t run = 1;
  for (; outer > 0 && outer + 2 > shape.size() && strides[outer - 1] == run; --outer) {
    run *= shape[outer - 1];
  }
  const std::int64_t count = call::element_count(shape);
  for (std::int64_t first = 0; first < count; first += run) {
    std::int64_t i = first / run, at = 0;
    for (std::size_t axis = outer; axis-- > 0;) {
      at += i % shape[axis] * strides[axis];
      i /= shape[axis];
    }
    f(static_cast<std::size_t>(first), static_cast<std::size_t>(at), static_cast<std::size_t>(run));
  }
}

Layout layout_of(const Record& record, const std::string& name, const Tensor& tensor,
                 const Placement& placement) {
  const call::TensorRow& row = row_of(record, name);
  const std::vector<Axis> axes = call::axes_of(record, row);
  const bool gaps = row.storage == call::Storage::kFloat && axes.size() > 1;
  const std::int64_t gap = gaps ? placement.gap : 0;
  const std::size_t dense = dense_axes(axes, gap);
  const bool of_rows = row.storage != call::Storage::kFloat && axes.size() == 1 &&
                       (axes[0] == call::axis::kRow || axes[0] == call::axis::kSequence);
  Layout layout{.shape = tensor.shape(),
                .strides = tensor.shape(),
                .size = of_rows      ? placement.columns
                        : dense == 0 ? 1 + gap
                                     : 1};
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    const std::int64_t spare = name == "intermediate_states" && axis == 1 ? placement.spare : 0;
    layout.strides[axis] = layout.size;
    layout.size = std::max<std::int64_t>(1, layout.size * (layout.shape[axis] + spare)) +
                  (axis + dense <= axes.size() ? gap : 0);
  }
  return layout;
}

LiveCall::LiveCall(Record record, const Placement& placement, Memory memory)
    : record_(std::move(record)), placement_(placement), memory_(memory) {
  record_.outputs = gpu::make_outputs(
      record_, placement.separate != 0 ? gpu::Update::kSeparate : gpu::Update::kInPlace);
  if (placement.keeps == 0) record_.outputs.erase("intermediate_states");
  if (placement.output == 0) record_.outputs.erase("o");
  Record given = record_;
  if (placement.stray != 0) use_stray_slots(given);
  const gpu::Place at = [this](const std::string& name, const Tensor& tensor) {
    return place(name, tensor);
  };
  const auto flag = [](std::int64_t wanted, std::uint32_t bit) { return wanted != 0 ? bit : 0; };
  const std::uint32_t dependent = flag(placement.dependent, GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH);
  if (is_attention()) {
    attention_args_ = gpu::make_attention_args(given, at);
    attention_args_.flags = dependent;
    attention_args_.splits = placement.splits;
    return;
  }
  if (!is_prefill()) {
    args_ = gpu::make_args(given, at);
    args_.intermediate_rows += placement.spare;
    args_.flags = dependent | flag(placement.trigger, GOLDENRULE_GPU_FLAG_TRIGGER_EARLY) |
                  flag(placement.ready, GOLDENRULE_GPU_FLAG_STATE_READY) |
                  flag(1 - placement.output, GOLDENRULE_GPU_FLAG_NO_OUTPUT);
    return;
  }
  prefill_args_ = gpu::make_prefill_args(given, at);
  prefill_args_.flags = dependent | flag(placement.precise, GOLDENRULE_GPU_FLAG_PRECISE) |
                        flag(placement.never_split, GOLDENRULE_GPU_FLAG_NEVER_SPLIT);
  fit_workspace();
}

void LiveCall::fit_workspace() {
  const std::size_t size = goldenrule_gpu_prefill_workspace_size(&prefill_args_);
  if (size <= prefill_args_.workspace_size) return;
  workspace_ = std::make_unique<GuardedBuffer>(
      "workspace", size, static_cast<std::uint64_t>(placement_.poison), 0, memory_);
  prefill_args_.workspace = workspace_->data();
  prefill_args_.workspace_size = size;
}

bool LiveCall::only_written(const std::string& name) const {
  if (name == "final_state") {
    return is_prefill() && record_.find_input("state_indices") == nullptr;
  }
  const bool output =
      name == "o" || name == "lse" || name == "intermediate_states" || name == "checkpoints";
  return output && !is_updated(name);
}

const char* LiveCall::contract() const {
  return is_prefill() ? gpu::contract_of(record_, prefill_args_) : gpu::contract_of(record_);
}

goldenrule_gpu_tensor LiveCall::place(const std::string& name, const Tensor& tensor) {
  const std::size_t bytes = call::info(tensor.dtype()).bytes;
  Placed placed{.name = name,
                .layout = layout_of(record_, name, tensor, placement_),
                .dtype = tensor.dtype(),
                .image = {},
                .buffer = nullptr};
  // The poison of a tensor depends on nothing but its name and the seed: runs can be compared.
  const std::uint64_t seed = random::fnv1a(name) + static_cast<std::uint64_t>(placement_.poison);
  placed.image = make_poison(static_cast<std::size_t>(placed.layout.size) * bytes, seed);
  placed.buffer =
      std::make_unique<GuardedBuffer>(name, placed.image.size(), ~seed,
                                      static_cast<std::size_t>(placement_.shift) * bytes, memory_);
  fill(placed, tensor);
  goldenrule_gpu_tensor t{};
  t.data = placed.buffer->data();
  // Also the stride of a contiguous last axis, where the interface has an entry for none: ignored.
  const std::size_t axes = std::min<std::size_t>(std::size(t.stride), tensor.shape().size());
  std::copy_n(placed.layout.strides.begin(), axes, t.stride);
  placed_.push_back(std::move(placed));
  return t;
}

void LiveCall::fill(Placed& placed, const Tensor& tensor) {
  const std::size_t bytes = call::info(placed.dtype).bytes;
  const bool written = record_.outputs.contains(placed.name) && !is_updated(placed.name);
  if (memory_ == Memory::kBare && written) return;
  if (!only_written(placed.name)) {
    placed.layout.for_each_run([&](std::size_t from, std::size_t to, std::size_t count) {
      std::copy_n(&tensor.bytes()[from * bytes], count * bytes, &placed.image[to * bytes]);
    });
  }
  placed.buffer->upload(placed.image);
}

void LiveCall::launch(cudaStream_t stream, const Kernel& kernel) {
  if (is_prefill()) fit_workspace();
  args_.stream = prefill_args_.stream = attention_args_.stream = stream;
  char message[256] = "";
  const goldenrule_gpu_status status =
      is_attention() ? kernel.attention(&attention_args_, message, sizeof message)
      : is_prefill() ? kernel.prefill(&prefill_args_, message, sizeof message)
                     : kernel.recurrent(&args_, message, sizeof message);
  if (status != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument,
                is_attention() ? "goldenrule_gpu_attention"
                : is_prefill() ? "goldenrule_gpu_prefill"
                               : "goldenrule_gpu_recurrent",
                "ok", std::string(goldenrule_gpu_status_name(status)) + ": " + message);
  }
}

void LiveCall::synchronize() const {
  if (memory_ != Memory::kHost) gpu::check_cuda(cudaDeviceSynchronize(), "kernel");
}

void LiveCall::reset(const Record& record) {
  Record given = record;
  if (placement_.stray != 0) use_stray_slots(given);
  for (Placed& placed : placed_) {
    const Tensor* input =
        given.find_input(is_updated(placed.name) ? gpu::name_before(placed.name) : placed.name);
    if (input == nullptr) input = given.find_input("initial_state");
    fill(placed, input != nullptr ? *input : Tensor());  // of what is only written nothing is read
  }
  record_.inputs = record.inputs;
}

void LiveCall::overwrite(const std::string& name, const Tensor& tensor) {
  fill(*std::ranges::find(placed_, name, &Placed::name), tensor);
}

call::TensorMap LiveCall::outputs() const {
  call::TensorMap outputs;
  for (const Placed& placed : placed_) {
    const bool final = placed.name == final_name();
    if (!final && !only_written(placed.name) && !is_updated(placed.name)) continue;
    Tensor& tensor = outputs[final ? "final_state" : placed.name];
    tensor = Tensor(placed.dtype, placed.layout.shape);
    const std::size_t bytes = call::info(placed.dtype).bytes;
    const Bytes now = placed.buffer->download();
    placed.layout.for_each_run([&](std::size_t to, std::size_t from, std::size_t count) {
      std::copy_n(&now[from * bytes], count * bytes, &tensor.bytes()[to * bytes]);
    });
  }
  return outputs;
}

std::string LiveCall::stray_write(const WriteSet& writes) const {
  const call::Dims d = call::validate(record_);
  const auto block = static_cast<std::size_t>(d.HV * d.state_size());
  if (workspace_ != nullptr) {
    if (std::string complaint = workspace_->violation(); !complaint.empty()) return complaint;
  }
  for (const Placed& placed : placed_) {
    if (std::string complaint = placed.buffer->violation(); !complaint.empty()) return complaint;
    const bool final = placed.name == final_name();
    const bool output = final || only_written(placed.name) || is_updated(placed.name);
    const std::vector<bool>& written = final ? writes.final_state : writes.kept_states;
    const std::size_t bytes = call::info(placed.dtype).bytes;
    Bytes now = placed.buffer->download();
    const auto restore = [&](std::size_t at, std::size_t count) {
      std::copy_n(&placed.image[at * bytes], count * bytes, &now[at * bytes]);
    };
    if (placed.name.starts_with("ring_") && output) {
      placed.layout.for_each_run([&](std::size_t first, std::size_t at, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
          if (writes.rings[place_of_element(placed.layout.shape, first + i)]) restore(at + i, 1);
        }
      });
    } else if (output) {
      placed.layout.for_each_run([&](std::size_t first, std::size_t at, std::size_t count) {
        const bool rows = placed.name == "o" || placed.name == "lse";
        if (rows ? !writes.o : !written[first / block]) return;
        restore(at, count);
      });
    }
    std::string complaint =
        first_difference(placed.name + (output ? " (unwritten)" : " (input)"), placed.image, now);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

call::TensorMap outputs_of(const Record& record, const Placement& placement, Memory memory,
                           const Kernel& kernel) {
  LiveCall live(record, placement, memory);
  return outputs_of(live, record.case_line, kernel);
}

call::TensorMap outputs_of(LiveCall& live, const std::string& name, const Kernel& kernel) {
  live.launch(nullptr, kernel);
  live.synchronize();
  const std::string complaint = live.stray_write();
  if (complaint.empty()) return live.outputs();
  throw Error(ErrorKind::kArgument, name, "no stray write", complaint);
}

std::string difference(const call::TensorMap& a, const call::TensorMap& b) {
  for (const auto& [name, tensor] : a) {
    std::string text = first_difference(name, tensor.bytes(), b.at(name).bytes());
    if (!text.empty()) return text;
  }
  return "";
}

int different_runs(LiveCall& live, const call::TensorMap& first, int runs) {
  int different = 0;
  for (int run = 0; run < runs; ++run) {
    live.launch();
    live.synchronize();
    different += difference(first, live.outputs()).empty() ? 0 : 1;
  }
  return different;
}

}  // namespace goldenrule::test
