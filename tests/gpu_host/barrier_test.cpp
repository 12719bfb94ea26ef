// SPDX-License-Identifier: Apache-2.0
//
// A barrier that two branches of a block reach at two places in the code. PTX permits it where
// numbers of threads are counted, synccheck refuses it, and so does the host execution: it runs
// where no synccheck does. The barrier of a cluster may be reached at several places: synccheck
// takes it for one of a block in launches without clusters alone, and those are refused.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gpu/ptx/barrier.cuh"
#include "gpu/ptx/cluster.cuh"

namespace goldenrule::test {
namespace {

namespace ptx = gpu::ptx;

constexpr int kThreads = 128;

__global__ void come_apart(int* x, int barrier) {
  if (threadIdx.x < 64) {
    if (barrier == 0) __syncthreads();
    if (barrier == 1) ptx::synchronize_threads<kThreads>(1);
    if (barrier == 2) ptx::synchronize_cluster();
  } else {
    if (barrier == 0) __syncthreads();
    if (barrier == 1) ptx::synchronize_threads<kThreads>(1);
    if (barrier == 2) ptx::synchronize_cluster();
  }
  x[threadIdx.x] = 1;
}

/// The same barriers, at one place each, and again and again.
__global__ void come_together(int* x, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    ptx::synchronize_threads<kThreads>(1);
    ptx::synchronize_cluster();
  }
  x[threadIdx.x] = 1;
}

/// Why a launch of a cluster of one block failed, or "".
std::string failure_of(void (*kernel)(int*, int), int argument) {
  std::vector<int> x(kThreads);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {.x = 1, .y = 1, .z = 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, x.data(), argument) == cudaSuccess);
  const bool passed = cudaDeviceSynchronize() == cudaSuccess;
  static_cast<void>(cudaGetLastError());
  CHECK((x == std::vector<int>(kThreads, 1)) == passed);
  return simt::take_failure();
}

TEST_CASE("host execution: a barrier is one place in the code for all threads of a block") {
  CHECK(failure_of(come_together, 3) == "");
  CHECK(failure_of(come_apart, 2) == "");
  for (const int barrier : {0, 1}) {
    CHECK(failure_of(come_apart, barrier).find("come to one barrier at two places") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace goldenrule::test
