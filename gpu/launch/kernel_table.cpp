// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/kernel_table.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "gpu/launch/launch_kernel.hpp"

namespace goldenrule::gpu {
namespace {

std::size_t place(int i) { return static_cast<std::size_t>(i); }

/// PTX has griddepcontrol from this virtual architecture on (ptx/grid_dependency.cuh).
constexpr int kFirstThatWaits = 90;

/// Of the shared memory of a multiprocessor, for each block: what is left is the most that a block
/// can be given (102,400 and 101,376 bytes on 8.9, 233,472 and 232,448 on 9.0).
constexpr int kSystemShared = 1024;

/// Clusters beyond the size that every device has room for: some have too few multiprocessors
/// beside each other.
Problem allow_cluster(const Kernel& kernel, int shared, bool& has_room) {
  constexpr unsigned kPortable = 8;
  if (kernel.cluster <= kPortable) return {};
  Problem problem = cuda_problem(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
      kernel.name);
  if (!problem.ok()) return problem;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kernel.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kernel.cluster);
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  problem = cuda_problem(cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config),
                         kernel.name);
  has_room = clusters > 0;
  return problem;
}

}  // namespace

KernelTable::KernelTable(int size, Kernel (*at)(int))
    : at_(at), size_(size), loaded_(place(size * kMaxDevices)), hits_(place(size)) {}

KernelTable::Loaded& KernelTable::loaded(int i, int device) {
  return loaded_[place(device * size_ + i)];
}
const KernelTable::Loaded& KernelTable::loaded(int i, int device) const {
  return loaded_[place(device * size_ + i)];
}

Problem KernelTable::prepare(const Device& device) {
  if (prepared_[place(device.id)].load(std::memory_order_acquire)) return {};
  int all_shared = 0;
  Problem problem = cuda_problem(
      cudaDeviceGetAttribute(&all_shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.id),
      "cudaDeviceGetAttribute");
  for (int i = 0; i < size() && problem.ok(); ++i) {
    const Kernel kernel = at_(i);
    const bool runs = (kernel.runs_on == nullptr || kernel.runs_on(device)) &&
                      kernel.shared_bytes <= all_shared - kSystemShared;
    if (runs && kernel.function != nullptr) problem = prepare_kernel(i, device.id, all_shared);
  }
  if (problem.ok()) prepared_[place(device.id)].store(true, std::memory_order_release);
  return problem;
}

Problem KernelTable::prepare_kernel(int i, int device, int all_shared) {
  const Kernel kernel = at_(i);
  cudaFuncAttributes attributes{};
  const cudaError_t found = cudaFuncGetAttributes(&attributes, kernel.function);
  if (kernel.runs_on != nullptr && has_no_code(found)) return {};
  Problem problem = cuda_problem(found, kernel.name);
  if (!problem.ok()) return problem;
  // Two blocks with half of the memory each do not fit: every block has some of the system's.
  const int shared =
      kernel.one_block_per_sm ? std::max(kernel.shared_bytes, all_shared / 2) : kernel.shared_bytes;
  problem = cuda_problem(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
      kernel.name);
  if (!problem.ok()) return problem;
  bool has_room = true;
  problem = allow_cluster(kernel, shared, has_room);
  if (!problem.ok() || !has_room) return problem;
  int blocks = 0;
  problem =
      cuda_problem(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                       &blocks, kernel.function, kernel.threads, static_cast<std::size_t>(shared)),
                   kernel.name);
  Loaded& state = loaded(i, device);
  state.resident_blocks.store(blocks, std::memory_order_relaxed);
  state.shared_bytes.store(shared, std::memory_order_relaxed);
  state.can_depend.store(attributes.ptxVersion >= kFirstThatWaits, std::memory_order_relaxed);
  state.is_loaded.store(problem.ok(), std::memory_order_relaxed);
  return problem;
}

bool KernelTable::is_loaded(int i, int device) const {
  return loaded(i, device).is_loaded.load(std::memory_order_relaxed);
}

int KernelTable::resident_blocks(int i, int device) const {
  return loaded(i, device).resident_blocks.load(std::memory_order_relaxed);
}

bool KernelTable::can_depend(int i, int device) const {
  return loaded(i, device).can_depend.load(std::memory_order_relaxed);
}

Problem KernelTable::launch(int i, const LaunchPlan& plan, void* params, void* stream) {
  const Kernel kernel = at_(i);
  if (!is_loaded(i, plan.device)) {
    misses_.fetch_add(1, std::memory_order_relaxed);
    Problem problem;
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "arguments",
                   "a kernel in the dispatch table with code for this device", "none");
    return problem;
  }
  const Loaded& state = loaded(i, plan.device);
  void* arguments[] = {params};
  const Grid grid{
      .blocks = plan.blocks,
      .threads = static_cast<unsigned>(kernel.threads),
      .shared_bytes = static_cast<unsigned>(state.shared_bytes.load(std::memory_order_relaxed)),
      .cluster = kernel.cluster,
      .dependent = plan.dependent && can_depend(i, plan.device)};
  Problem problem = launch_kernel(kernel.function, grid, arguments, stream);
  if (problem.ok()) hits_[place(i)].fetch_add(1, std::memory_order_relaxed);
  return problem;
}

std::uint64_t KernelTable::hits(int i) const {
  return hits_[place(i)].load(std::memory_order_relaxed);
}

}  // namespace goldenrule::gpu
