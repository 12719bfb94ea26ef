// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/launch_kernel.hpp"

namespace goldenrule::gpu {

Problem launch_kernel(const void* function, const Grid& grid, void** arguments, void* stream) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (grid.dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster != 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = grid.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
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
