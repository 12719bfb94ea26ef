// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/launch_kernel.hpp"

namespace goldenrule::gpu {

Problem launch_kernel(const void* function, const Grid& grid, void** arguments, void* stream) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &dependent;
  config.numAttrs = grid.dependent ? 1 : 0;
  return cuda_problem(cudaLaunchKernelExC(&config, function, arguments), "launch");
}

Problem load_kernel(const void* function, const char* name) {
  cudaFuncAttributes attributes{};
  return cuda_problem(cudaFuncGetAttributes(&attributes, function), name);
}

bool has_no_code(cudaError_t error) {
  const bool none =
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
  if (none) static_cast<void>(cudaGetLastError());  // it is no error of anybody's
  return none;
}

}  // namespace goldenrule::gpu
