// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/producer.hpp"

#include "gpu/host/cuda_handles.hpp"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::test {
namespace {

constexpr int kThreads = 256;
constexpr int kPauses = 200;  // of 1 us at most: longer than any launch takes
constexpr unsigned kPauseNanoseconds = 1000;

/// One block, so that it never keeps the next kernel from a multiprocessor.
__global__ void produce(const Delivery* deliveries, int count) {
  gpu::ptx::launch_dependents();
  gpu::ptx::wait_for_dependencies();
  for (int i = 0; i < kPauses; ++i) __nanosleep(kPauseNanoseconds);
  for (int i = 0; i < count; ++i) {
    const Delivery d = deliveries[i];
    for (std::size_t at = threadIdx.x; at < d.bytes; at += kThreads) {
      static_cast<char*>(d.to)[at] = static_cast<const char*>(d.from)[at];
    }
  }
}

}  // namespace

void launch_producer(const Delivery* deliveries, int count, cudaStream_t stream, bool dependent) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  gpu::check_cuda(cudaLaunchKernelEx(&config, produce, deliveries, count), "producer");
}

}  // namespace goldenrule::test
