// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one group as the host launches them, whatever they compute: loaded once per
// device, launched by number, counted. The table itself is fixed when the library is built.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "gpu/launch/device.hpp"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

struct Kernel {
  const void* function = nullptr;  ///< nullptr: the table has no kernel at this place
  int threads = 0;
  int shared_bytes = 0;           ///< dynamic shared memory
  bool one_block_per_sm = false;  ///< one block per multiprocessor beats full occupancy
  const char* name = nullptr;
  /// Whether a device can run it: others do not load it, and no call may choose it there. nullptr:
  /// every device can.
  bool (*runs_on)(const Device&) = nullptr;
};

struct LaunchPlan {
  unsigned blocks = 0;     ///< of a one-dimensional grid; 0: the call has no effect
  bool dependent = false;  ///< programmatic dependent launch
};

class KernelTable {
 public:
  /// `at(i)` describes kernel i, 0 <= i < size.
  KernelTable(int size, Kernel (*at)(int));

  [[nodiscard]] int size() const { return static_cast<int>(states_.size()); }
  [[nodiscard]] const char* name(int i) const { return at_(i).name; }

  /// Loads all kernels of a device, once; a later call reads a flag. So the first call of a process
  /// is the only one that can load anything.
  [[nodiscard]] Problem prepare(const Device& device);

  /// How many blocks of kernel i a multiprocessor holds; after prepare().
  [[nodiscard]] int resident_blocks(int i) const;

  /// Launches kernel i with one argument, the struct at `params`, and counts a hit; a miss where
  /// the table has no kernel. `stream` is a cudaStream_t.
  [[nodiscard]] Problem launch(int i, const LaunchPlan& plan, void* params, void* stream);

  [[nodiscard]] std::uint64_t hits(int i) const;
  [[nodiscard]] std::uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  struct State {
    std::atomic<std::uint64_t> hits{0};
    // It only times prefetches, so the devices of a process may share it.
    std::atomic<int> resident_blocks{0};
    // The dynamic shared memory that the kernel is launched with.
    std::atomic<int> shared_bytes{0};
  };
  static constexpr int kMaxDevices = 64;

  [[nodiscard]] Problem prepare_kernel(int i, int all_shared);

  Kernel (*at_)(int);
  std::vector<State> states_;
  std::array<std::atomic<bool>, kMaxDevices> prepared_{};
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace goldenrule::gpu
