// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one group as the host launches them, whatever they compute: loaded once per
// device, launched by number, counted. The table itself is fixed when the library is built; what
// was found out about a kernel when it was loaded belongs to one device.
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
  unsigned cluster = 0;  ///< blocks of a cluster; 0: it has no barrier of a cluster
  /// Whether a device can run it: others do not load it. nullptr: every device can. A kernel that
  /// has it may also be missing from the code that the driver takes (is_loaded).
  bool (*runs_on)(const Device&) = nullptr;
};

struct LaunchPlan {
  int device = 0;
  unsigned blocks = 0;     ///< of a one-dimensional grid; 0: the call has no effect
  bool dependent = false;  ///< programmatic dependent launch, where the kernel waits for it
};

class KernelTable {
 public:
  /// `at(i)` describes kernel i, 0 <= i < size.
  KernelTable(int size, Kernel (*at)(int));

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const char* name(int i) const { return at_(i).name; }

  /// Loads all kernels of a device, once; a later call reads a flag. So the first call of a process
  /// is the only one that can load anything.
  [[nodiscard]] Problem prepare(const Device& device);

  // Of kernel i on a device, after prepare().

  /// Whether the device has code for it: the driver may have been told to take other code than the
  /// best (CUDA_FORCE_PTX_JIT), and a kernel of one architecture is not in that. Nor is one loaded
  /// that needs more shared memory than a block can have there.
  [[nodiscard]] bool is_loaded(int i, int device) const;
  /// How many blocks a multiprocessor holds.
  [[nodiscard]] int resident_blocks(int i, int device) const;
  /// Whether the code that the device runs waits for the kernel in front of it. That follows from
  /// what it was compiled for, not from the device: one of 9.0 or later also runs PTX of
  /// compute_80, which has no such instruction.
  [[nodiscard]] bool can_depend(int i, int device) const;

  /// Launches kernel i with one argument, the struct at `params`, and counts a hit; a miss where
  /// the table has no kernel. `stream` is a cudaStream_t. A kernel that cannot depend is launched
  /// behind whatever is in front of it, as without `dependent`.
  [[nodiscard]] Problem launch(int i, const LaunchPlan& plan, void* params, void* stream);

  [[nodiscard]] std::uint64_t hits(int i) const;
  [[nodiscard]] std::uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  struct Loaded {
    std::atomic<bool> is_loaded{false};
    std::atomic<bool> can_depend{false};
    std::atomic<int> resident_blocks{0};
    std::atomic<int> shared_bytes{0};  ///< that the kernel is launched with
  };

  [[nodiscard]] Problem prepare_kernel(int i, int device, int all_shared);
  [[nodiscard]] Loaded& loaded(int i, int device);
  [[nodiscard]] const Loaded& loaded(int i, int device) const;

  Kernel (*at_)(int);
  int size_;
  std::vector<Loaded> loaded_;  ///< device after device
  std::vector<std::atomic<std::uint64_t>> hits_;
  std::array<std::atomic<bool>, kMaxDevices> prepared_{};
  std::atomic<std::uint64_t> misses_{0};
};

}  // namespace goldenrule::gpu
