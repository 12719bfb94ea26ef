// SPDX-License-Identifier: Apache-2.0
//
// The C entry points: validate, choose, launch. Nothing here allocates device memory, waits, or
// keeps state beyond the counters and the cache of device attributes.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>

#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/check_indices.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/resolve.hpp"

namespace goldenrule::gpu {
namespace {

std::array<std::atomic<std::uint64_t>, kTableSize> entry_hits{};
std::atomic<std::uint64_t> misses{0};
// How many blocks of an entry a multiprocessor holds; it only times prefetches, so the devices of a
// process may share it.
std::array<std::atomic<int>, kTableSize> resident_blocks{};
// The dynamic shared memory that an entry is launched with.
std::array<std::atomic<int>, kTableSize> shared_bytes{};

goldenrule_gpu_status answer(const Problem& problem, char* message, std::size_t size) {
  if (message != nullptr && size > 0) {
    const std::size_t n = std::min(problem.text.size(), size - 1);
    std::memcpy(message, problem.text.data(), n);
    message[n] = '\0';
  }
  return problem.status;
}

Problem cuda_problem(cudaError_t error, const char* what) {
  Problem problem;
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    problem.report(GOLDENRULE_GPU_CUDA_ERROR, what, "success", cudaGetErrorString(error));
  }
  return problem;
}

/// Loads all kernels of a device, once; a later call reads a flag. So the first call of a process
/// is the only one that can load anything.
Problem prepare(const Device& device) {
  constexpr int kMaxDevices = 64;
  static std::array<std::atomic<bool>, kMaxDevices> done{};
  const auto id = static_cast<std::size_t>(device.id);
  if (id < done.size() && done[id].load(std::memory_order_acquire)) return {};
  int all_shared = 0;
  Problem problem = cuda_problem(
      cudaDeviceGetAttribute(&all_shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device.id),
      "cudaDeviceGetAttribute");
  for (int i = 0; i < kTableSize && problem.ok(); ++i) {
    const Entry& entry = table_entry(i);
    const void* kernel = reinterpret_cast<const void*>(entry.kernel);
    // Two blocks with half of the memory each do not fit: every block has some of the system's.
    const int shared =
        entry.alone ? std::max(entry.shared_bytes, all_shared / 2) : entry.shared_bytes;
    problem = cuda_problem(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
        entry.name);
    if (!problem.ok()) break;
    int blocks = 0;
    problem = cuda_problem(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                               &blocks, kernel, entry.threads, static_cast<std::size_t>(shared)),
                           entry.name);
    resident_blocks[static_cast<std::size_t>(i)].store(blocks, std::memory_order_relaxed);
    shared_bytes[static_cast<std::size_t>(i)].store(shared, std::memory_order_relaxed);
  }
  if (!problem.ok()) return problem;
  if (id < done.size()) done[id].store(true, std::memory_order_release);
  return {};
}

/// Decode is bound by the memory, so the next wave's states are asked for ahead; but they must not
/// push out of L2 what is on its way to memory (measured on an H200, whose L2 has 60 MB: a wave of
/// 17 MB pays, one of 26 MB costs a quarter). MTP computes longer than it reads: nothing to gain.
bool prefetches_next(const Params& params, const Entry& entry) {
  constexpr std::int64_t kMost = std::int64_t{20} << 20;
  const std::int64_t element = params.bf16_state != 0 ? 2 : 4;
  return params.T == 1 && std::int64_t{params.wave} * entry.rows * params.K * element <= kMost;
}

Problem launch(const goldenrule_gpu_recurrent_args& args, Params& params, const Device& device) {
  const int index = table_index(select(params, args.B, device));
  const Entry& entry = table_entry(index);
  Problem problem;
  if (entry.kernel == nullptr) {
    misses.fetch_add(1, std::memory_order_relaxed);
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "arguments", "a kernel in the dispatch table",
                   "none");
    return problem;
  }
  params.tiles = (params.V + entry.rows - 1) / entry.rows;
  params.by_tiles = Divisor::of(params.tiles);
  params.wave = resident_blocks[static_cast<std::size_t>(index)].load(std::memory_order_relaxed) *
                device.multiprocessors;
  params.prefetch_next = prefetches_next(params, entry) ? 1 : 0;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  const bool overlap =
      (args.flags & GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH) != 0 && device.capability >= 90;
  params.dependent = overlap ? 1 : 0;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.B * args.HV * params.tiles));
  config.blockDim = dim3(static_cast<unsigned>(entry.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(
      shared_bytes[static_cast<std::size_t>(index)].load(std::memory_order_relaxed));
  config.stream = static_cast<cudaStream_t>(args.stream);
  config.attrs = &dependent;
  config.numAttrs = overlap ? 1 : 0;
  void* parameters[] = {&params};
  problem = cuda_problem(
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(entry.kernel), parameters),
      "launch");
  if (problem.ok()) {
    entry_hits[static_cast<std::size_t>(index)].fetch_add(1, std::memory_order_relaxed);
  }
  return problem;
}

Problem null_problem(const char* argument) {
  Problem problem;
  problem.invalid(argument, "a pointer", "NULL");
  return problem;
}

Problem check(const goldenrule_gpu_recurrent_args* args, Params& params, Device& device) {
  if (args == nullptr) return null_problem("args");
  Problem problem = resolve(*args, params);
  if (problem.ok()) problem = current_device(device);
  return problem;
}

// No exception crosses the C boundary; the only one possible is a failed allocation of a message.
template <class F>
goldenrule_gpu_status guarded(char* message, std::size_t size, F&& run) {
  try {
    return answer(run(), message, size);
  } catch (const std::exception&) {
    if (message != nullptr && size > 0) message[0] = '\0';
    return GOLDENRULE_GPU_CUDA_ERROR;
  }
}

}  // namespace
}  // namespace goldenrule::gpu

using goldenrule::gpu::Device;
using goldenrule::gpu::Params;
using goldenrule::gpu::Problem;

extern "C" {

void goldenrule_gpu_recurrent_defaults(goldenrule_gpu_recurrent_args* args) {
  if (args == nullptr) return;
  *args = {};
  args->struct_size = sizeof(*args);
  args->qk_norm = GOLDENRULE_GPU_NORM_RSQRT_SUM_EPS;
  args->pad_slot = -1;
  args->scale = 1.0;
  args->l2_eps = 1e-6;
  args->softplus_beta = 1.0;
  args->softplus_threshold = 20.0;
  args->lower_bound = -5.0;
}

goldenrule_gpu_status goldenrule_gpu_recurrent_validate(const goldenrule_gpu_recurrent_args* args,
                                                        char* message, size_t message_size) {
  return goldenrule::gpu::guarded(message, message_size, [&] {
    Params params;
    Device device;
    return goldenrule::gpu::check(args, params, device);
  });
}

size_t goldenrule_gpu_recurrent_workspace_size(const goldenrule_gpu_recurrent_args* /*args*/) {
  return 0;
}

goldenrule_gpu_status goldenrule_gpu_recurrent(const goldenrule_gpu_recurrent_args* args,
                                               char* message, size_t message_size) {
  return goldenrule::gpu::guarded(message, message_size, [&] {
    Params params;
    Device device;
    Problem problem = goldenrule::gpu::check(args, params, device);
    if (!problem.ok() || !goldenrule::gpu::has_effect(*args)) return problem;
    problem = goldenrule::gpu::prepare(device);
    if (problem.ok()) {
      problem = goldenrule::gpu::launch(*args, params, device);
    }
    return problem;
  });
}

goldenrule_gpu_status goldenrule_gpu_initialize(char* message, size_t message_size) {
  return goldenrule::gpu::guarded(message, message_size, [&] {
    Device device;
    Problem problem = goldenrule::gpu::current_device(device);
    if (problem.ok()) problem = goldenrule::gpu::prepare(device);
    return problem;
  });
}

goldenrule_gpu_status goldenrule_gpu_recurrent_check(const goldenrule_gpu_recurrent_args* args,
                                                     goldenrule_gpu_index_report* device_report,
                                                     char* message, size_t message_size) {
  return goldenrule::gpu::guarded(message, message_size, [&] {
    if (device_report == nullptr) return goldenrule::gpu::null_problem("device_report");
    Params params;
    Device device;
    Problem problem = goldenrule::gpu::check(args, params, device);
    if (!problem.ok()) return problem;
    const bool in_place =
        args->final_state.data == nullptr || args->final_state.data == args->state.data;
    return goldenrule::gpu::cuda_problem(
        goldenrule::gpu::launch_check(params, static_cast<int>(args->B), in_place, device_report,
                                      static_cast<cudaStream_t>(args->stream)),
        "launch");
  });
}

uint64_t goldenrule_gpu_dispatch_hits(void) {
  uint64_t sum = 0;
  for (const auto& hits : goldenrule::gpu::entry_hits) sum += hits.load(std::memory_order_relaxed);
  return sum;
}

uint64_t goldenrule_gpu_dispatch_misses(void) {
  return goldenrule::gpu::misses.load(std::memory_order_relaxed);
}

int32_t goldenrule_gpu_dispatch_size(void) { return goldenrule::gpu::kTableSize; }

const char* goldenrule_gpu_dispatch_name(int32_t i) {
  if (i < 0 || i >= goldenrule::gpu::kTableSize) return nullptr;
  return goldenrule::gpu::table_entry(i).name;
}

uint64_t goldenrule_gpu_dispatch_entry_hits(int32_t i) {
  if (i < 0 || i >= goldenrule::gpu::kTableSize) return 0;
  return goldenrule::gpu::entry_hits[static_cast<std::size_t>(i)].load(std::memory_order_relaxed);
}

const char* goldenrule_gpu_status_name(goldenrule_gpu_status status) {
  switch (status) {
    case GOLDENRULE_GPU_OK:
      return "ok";
    case GOLDENRULE_GPU_INVALID_ARGUMENT:
      return "invalid argument";
    case GOLDENRULE_GPU_UNSUPPORTED:
      return "unsupported";
    case GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE:
      return "unsupported architecture";
    case GOLDENRULE_GPU_CUDA_ERROR:
      return "CUDA error";
  }
  return "unknown status";
}

}  // extern "C"
