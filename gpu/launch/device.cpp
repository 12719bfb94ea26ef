// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <utility>

#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu {
namespace {

constexpr int kLowestCapability = 80;

// (multiprocessors << 16 | capability) of a device that was asked; 0 before.
std::array<std::atomic<unsigned>, kMaxDevices> cache{};

/// Only what says that there is no device or no driver: a device that is lost, or an error that
/// somebody's kernel has left, is an error and no property of the machine.
bool means_no_device(cudaError_t error) {
  return error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
         error == cudaErrorStubLibrary;
}

Problem device_problem(cudaError_t error) {
  if (!means_no_device(error)) return cuda_problem(error, "device");
  static_cast<void>(cudaGetLastError());  // do not leave it for an unrelated later check
  Problem problem;
  problem.report(GOLDENRULE_GPU_NO_DEVICE, "device", "a CUDA device", cudaGetErrorString(error));
  return problem;
}

Problem ask(int id, unsigned& word) {
  int major = 0, minor = 0, count = 0;
  for (const auto& [value, attribute] : {std::pair{&major, cudaDevAttrComputeCapabilityMajor},
                                         std::pair{&minor, cudaDevAttrComputeCapabilityMinor},
                                         std::pair{&count, cudaDevAttrMultiProcessorCount}}) {
    const cudaError_t e = cudaDeviceGetAttribute(value, attribute, id);
    if (e != cudaSuccess) return device_problem(e);
  }
  word = static_cast<unsigned>(count) << 16 | static_cast<unsigned>(10 * major + minor);
  return {};
}

}  // namespace

Problem current_device(Device& device) {
  int id = 0;
  if (const cudaError_t e = cudaGetDevice(&id); e != cudaSuccess) return device_problem(e);
  Problem problem;
  if (id < 0 || id >= kMaxDevices) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "device",
                   "a number below " + std::to_string(kMaxDevices), std::to_string(id));
    return problem;
  }
  auto& cached = cache[static_cast<std::size_t>(id)];
  unsigned word = cached.load(std::memory_order_relaxed);
  if (word == 0) {
    problem = ask(id, word);
    if (!problem.ok()) return problem;
    cached.store(word, std::memory_order_relaxed);
  }
  device.id = id;
  device.multiprocessors = static_cast<int>(word >> 16);
  device.capability = static_cast<int>(word & 0xffffU);
  if (device.capability < kLowestCapability) {
    problem.report(
        GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE, "device", "compute capability 8.0 or later",
        std::to_string(device.capability / 10) + "." + std::to_string(device.capability % 10));
  }
  return problem;
}

}  // namespace goldenrule::gpu
