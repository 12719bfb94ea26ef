// SPDX-License-Identifier: Apache-2.0
//
// The edge of the C interface: no exception crosses it, and every refusal is a status and a
// message.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>

#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

/// No problem where `error` is success; else CUDA_ERROR, and the runtime's sticky error is cleared.
[[nodiscard]] Problem cuda_problem(cudaError_t error, const char* what);

[[nodiscard]] Problem null_problem(const char* argument);

/// Writes the message, truncated to `size`; returns the status.
goldenrule_gpu_status answer(const Problem& problem, char* message, std::size_t size);

/// answer(run()). The only exception possible is a failed allocation of a message or of the tables'
/// counters.
template <class F>
goldenrule_gpu_status guarded(char* message, std::size_t size, F&& run) {
  try {
    return answer(run(), message, size);
  } catch (const std::exception&) {
    if (message != nullptr && size > 0) message[0] = '\0';
    return GOLDENRULE_GPU_CUDA_ERROR;
  }
}

}  // namespace goldenrule::gpu
