// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/kernel_table.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu {
namespace {

std::size_t place(int i) { return static_cast<std::size_t>(i); }

}  // namespace

KernelTable::KernelTable(int size, Kernel (*at)(int)) : at_(at), states_(place(size)) {}

Problem KernelTable::prepare(const Device& device) {
  const bool known = device.id < kMaxDevices;
  if (known && prepared_[place(device.id)].load(std::memory_order_acquire)) return {};
  int all_shared = 0;
  Problem problem = cuda_problem(
      cudaDeviceGetAttribute(&all_shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.id),
      "cudaDeviceGetAttribute");
  for (int i = 0; i < size() && problem.ok(); ++i) {
    const Kernel kernel = at_(i);
    const bool runs = kernel.runs_on == nullptr || kernel.runs_on(device);
    if (runs) problem = prepare_kernel(i, all_shared);
  }
  if (problem.ok() && known) prepared_[place(device.id)].store(true, std::memory_order_release);
  return problem;
}

Problem KernelTable::prepare_kernel(int i, int all_shared) {
  const Kernel kernel = at_(i);
  if (kernel.function == nullptr) return {};
  // Two blocks with half of the memory each do not fit: every block has some of the system's.
  const int shared =
      kernel.one_block_per_sm ? std::max(kernel.shared_bytes, all_shared / 2) : kernel.shared_bytes;
  Problem problem = cuda_problem(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
      kernel.name);
  if (!problem.ok()) return problem;
  int blocks = 0;
  problem =
      cuda_problem(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                       &blocks, kernel.function, kernel.threads, static_cast<std::size_t>(shared)),
                   kernel.name);
  State& state = states_[place(i)];
  state.resident_blocks.store(blocks, std::memory_order_relaxed);
  state.shared_bytes.store(shared, std::memory_order_relaxed);
  return problem;
}

int KernelTable::resident_blocks(int i) const {
  return states_[place(i)].resident_blocks.load(std::memory_order_relaxed);
}

Problem KernelTable::launch(int i, const LaunchPlan& plan, void* params, void* stream) {
  const Kernel kernel = at_(i);
  Problem problem;
  if (kernel.function == nullptr) {
    misses_.fetch_add(1, std::memory_order_relaxed);
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "arguments", "a kernel in the dispatch table",
                   "none");
    return problem;
  }
  State& state = states_[place(i)];
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(plan.blocks);
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes =
      static_cast<std::size_t>(state.shared_bytes.load(std::memory_order_relaxed));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &dependent;
  config.numAttrs = plan.dependent ? 1 : 0;
  void* arguments[] = {params};
  problem = cuda_problem(cudaLaunchKernelExC(&config, kernel.function, arguments), "launch");
  if (problem.ok()) state.hits.fetch_add(1, std::memory_order_relaxed);
  return problem;
}

std::uint64_t KernelTable::hits(int i) const {
  return states_[place(i)].hits.load(std::memory_order_relaxed);
}

}  // namespace goldenrule::gpu
