// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/guard.hpp"

#include <algorithm>
#include <cstring>

namespace goldenrule::gpu {

Problem cuda_problem(cudaError_t error, const char* what) {
  Problem problem;
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // do not leave it for an unrelated later check
    problem.report(GOLDENRULE_GPU_CUDA_ERROR, what, "success", cudaGetErrorString(error));
  }
  return problem;
}

Problem null_problem(const char* argument) {
  Problem problem;
  problem.invalid(argument, "a pointer", "NULL");
  return problem;
}

goldenrule_gpu_status answer(const Problem& problem, char* message, std::size_t size) {
  if (message != nullptr && size > 0) {
    const std::size_t n = std::min(problem.text.size(), size - 1);
    std::memcpy(message, problem.text.data(), n);
    message[n] = '\0';
  }
  return problem.status;
}

}  // namespace goldenrule::gpu
