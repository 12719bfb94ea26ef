// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <utility>

namespace goldenrule::gpu {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kLowestCapability = 80;

// (multiprocessors << 16 | capability) of a device that was asked; 0 before.
std::array<std::atomic<unsigned>, kMaxDevices> cache{};

Problem cuda_problem(cudaError_t error) {
  static_cast<void>(cudaGetLastError());  // do not leave it for an unrelated later check
  Problem problem;
  problem.report(GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE, "device", "a CUDA device",
                 cudaGetErrorString(error));
  return problem;
}

}  // namespace

Problem current_device(Device& device) {
  int id = 0;
  if (const cudaError_t e = cudaGetDevice(&id); e != cudaSuccess) return cuda_problem(e);
  const bool cached = id < kMaxDevices;
  unsigned word = cached ? cache[static_cast<std::size_t>(id)].load(std::memory_order_relaxed) : 0;
  if (word == 0) {
    int major = 0, minor = 0, count = 0;
    for (const auto& [value, attribute] : {std::pair{&major, cudaDevAttrComputeCapabilityMajor},
                                           std::pair{&minor, cudaDevAttrComputeCapabilityMinor},
                                           std::pair{&count, cudaDevAttrMultiProcessorCount}}) {
      const cudaError_t e = cudaDeviceGetAttribute(value, attribute, id);
      if (e != cudaSuccess) return cuda_problem(e);
    }
    word = static_cast<unsigned>(count) << 16 | static_cast<unsigned>(10 * major + minor);
    if (cached) cache[static_cast<std::size_t>(id)].store(word, std::memory_order_relaxed);
  }
  device.id = id;
  device.multiprocessors = static_cast<int>(word >> 16);
  device.capability = static_cast<int>(word & 0xffffU);
  Problem problem;
  if (device.capability < kLowestCapability) {
    problem.report(
        GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE, "device", "compute capability 8.0 or later",
        std::to_string(device.capability / 10) + "." + std::to_string(device.capability % 10));
  }
  return problem;
}

}  // namespace goldenrule::gpu
