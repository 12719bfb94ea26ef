// SPDX-License-Identifier: Apache-2.0
//
// A record (fixtures/call) on the device, every tensor in a guarded buffer.
#pragma once

#include <string>

#include "fixtures/call/record.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {

struct RecordRun {
  goldenrule_gpu_status status = GOLDENRULE_GPU_OK;
  std::string message;      ///< of a refusal
  std::string stray_write;  ///< "" or the first: a redzone, an input, a block that nobody writes
  call::TensorMap outputs;  ///< as a capture has them; poison where the kernel wrote nothing
};

/// Runs the record by way of the C interface and waits. Throws Error on a CUDA error.
[[nodiscard]] RecordRun run_record(call::Record record, gpu::Update update);

/// The same with a refusal, a stray write or a failed launch as an Error; outputs only.
[[nodiscard]] call::TensorMap outputs_of(const call::Record& record, gpu::Update update);

}  // namespace goldenrule::test
