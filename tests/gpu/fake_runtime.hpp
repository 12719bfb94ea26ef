// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime without a device, linked in the place of the real one: what the library asks of it
// and what it would launch can be seen on any machine, of devices that nobody has at hand, of two
// kinds in one process, and with errors at will. Kernels are not run.
//
// A program that has it links the objects of the library and no cudart.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace goldenrule::test {

/// A device as the runtime describes it.
struct FakeDevice {
  int capability = 90;
  int multiprocessors = 132;
  int shared_per_multiprocessor = 233'472;
  /// The virtual architecture of the code that it runs: cudaFuncAttributes::ptxVersion.
  int code = 90;
  /// No code of the kernels that only 9.0 has, as with CUDA_FORCE_PTX_JIT.
  bool lacks_sm90a = false;
  unsigned largest_cluster = 16;  ///< that it has room for
};

struct FakeLaunch {
  int device = 0;
  const void* function = nullptr;
  unsigned blocks = 0, threads = 0, cluster = 0;
  std::size_t shared_bytes = 0;
  bool dependent = false;
  const void* argument = nullptr;  ///< the first; valid within on_launch only
};

struct FakeRuntime {
  static constexpr int kMost = 64;

  std::array<FakeDevice, kMost> devices{};
  int device_count = 0, current = 0;
  cudaError_t get_device_answer = cudaSuccess;  ///< of cudaGetDevice
  cudaError_t last_error = cudaSuccess;         ///< of cudaGetLastError

  /// Kernels of the library by the address of their host function, as their compiler names them.
  std::map<const void*, std::string> kernels;
  std::set<std::pair<int, const void*>> loaded;  ///< by device
  std::map<std::pair<int, const void*>, int> shared_limit;
  std::set<std::pair<int, const void*>> any_cluster;  ///< more than 8 blocks are allowed

  int launches = 0;
  FakeLaunch last;  ///< of the launches that succeeded
  /// Called with each launch while its arguments exist.
  void (*on_launch)(const FakeLaunch&) = nullptr;

  /// Another device, the current one from now on: nothing is known of it yet.
  void add_device(const FakeDevice& device);
  [[nodiscard]] const std::string& name_of(const void* function) const;
  /// Whether the current device has code of a kernel.
  [[nodiscard]] bool has_code(const void* function) const;
};

FakeRuntime& fake_runtime();

}  // namespace goldenrule::test
