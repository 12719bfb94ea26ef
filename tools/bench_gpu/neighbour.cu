// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/neighbour.hpp"

#include "gpu/host/cuda_handles.hpp"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::bench {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) neighbour(Trigger trigger, long long cycles) {
  if (trigger == Trigger::kAtOnce) gpu::ptx::launch_dependents();
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
  if (trigger == Trigger::kLate) gpu::ptx::launch_dependents();
}

}  // namespace

void launch_neighbour(Trigger trigger, int multiprocessors, long long cycles, cudaStream_t stream) {
  neighbour<<<static_cast<unsigned>(multiprocessors), kThreads, 0, stream>>>(trigger, cycles);
  gpu::check_cuda(cudaGetLastError(), "neighbour");
}

}  // namespace goldenrule::bench
