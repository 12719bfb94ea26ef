// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/record_run.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "tests/gpu/guarded_buffer.hpp"

namespace goldenrule::test {
namespace {

using Buffers = std::map<std::string, std::unique_ptr<GuardedBuffer>>;

/// The blocks of a target that the plan writes.
std::vector<char> written_blocks(const call::Plan& plan, call::Target target, std::int64_t count) {
  std::vector<char> written(static_cast<std::size_t>(count), 0);
  for (const call::Sequence& sequence : plan.sequences) {
    for (const call::Snapshot& s : sequence.snapshots) {
      if (s.target == target) written[static_cast<std::size_t>(s.block)] = 1;
    }
  }
  return written;
}

/// "" or the first byte that changed in a block that nobody writes.
std::string changed_block(const std::string& name, std::span<const std::byte> before,
                          std::span<const std::byte> after, const std::vector<char>& written) {
  const std::size_t block = written.empty() ? 0 : before.size() / written.size();
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (written[i] != 0) continue;
    std::string complaint =
        first_difference(name + ": block " + std::to_string(i) + " (unwritten)",
                         before.subspan(i * block, block), after.subspan(i * block, block));
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string find_stray_write(const call::Record& record, const Buffers& buffers,
                             const std::string& final_name) {
  for (const auto& [name, buffer] : buffers) {
    if (std::string complaint = buffer->violation(); !complaint.empty()) return complaint;
    const call::Tensor* input = record.find_input(name);
    if (input == nullptr || name == final_name) continue;
    std::string complaint = first_difference(name + " (input)", input->bytes(), buffer->download());
    if (!complaint.empty()) return complaint;
  }
  const call::Plan plan = call::make_plan(record, record.mode == call::Mode::kMtp);
  const Bytes pool = buffers.at(final_name)->download();
  std::string complaint =
      changed_block(final_name, record.inputs.at("initial_state").bytes(), pool,
                    written_blocks(plan, call::Target::kFinalState, plan.dims.slots));
  if (complaint.empty() && record.mode == call::Mode::kMtp) {
    const GuardedBuffer& rows = *buffers.at("intermediate_states");
    complaint = changed_block(
        "intermediate_states", rows.poison(), rows.download(),
        written_blocks(plan, call::Target::kIntermediateStates, plan.dims.rows * plan.dims.T));
  }
  return complaint;
}

}  // namespace

RecordRun run_record(call::Record record, gpu::Update update) {
  record.outputs = gpu::make_outputs(record, update);
  Buffers buffers;
  const goldenrule_gpu_recurrent_args args =
      gpu::make_args(record, [&](const std::string& name, const call::Tensor& tensor) {
        // The poison of a tensor depends on nothing but its name: runs can be compared whole.
        auto buffer = std::make_unique<GuardedBuffer>(name, tensor.bytes().size(),
                                                      std::hash<std::string>{}(name));
        if (name != "o" && name != "intermediate_states") buffer->upload(tensor.bytes());
        void* data = buffer->data();
        buffers[name] = std::move(buffer);
        return data;
      });
  RecordRun run;
  char message[256] = "";
  run.status = goldenrule_gpu_recurrent(&args, message, sizeof message);
  if (run.status != GOLDENRULE_GPU_OK) {
    run.message = message;
    return run;
  }
  gpu::check_cuda(cudaDeviceSynchronize(), "kernel");
  const std::string final_name = update == gpu::Update::kSeparate ? "final_state" : "initial_state";
  run.stray_write = find_stray_write(record, buffers, final_name);
  run.outputs = std::move(record.outputs);
  if (update == gpu::Update::kInPlace) {
    run.outputs["final_state"] = record.inputs.at("initial_state");
  }
  for (auto& [name, tensor] : run.outputs) {
    const Bytes bytes = buffers.at(name == "final_state" ? final_name : name)->download();
    std::ranges::copy(bytes, tensor.bytes().begin());
  }
  return run;
}

call::TensorMap outputs_of(const call::Record& record, gpu::Update update) {
  RecordRun run = run_record(record, update);
  if (run.status != GOLDENRULE_GPU_OK || !run.stray_write.empty()) {
    throw Error(ErrorKind::kArgument, record.case_line, "a call without a finding",
                run.message + run.stray_write);
  }
  return std::move(run.outputs);
}

}  // namespace goldenrule::test
