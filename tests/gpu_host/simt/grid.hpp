// SPDX-License-Identifier: Apache-2.0
//
// A launched kernel on the CPU: its blocks, in an order drawn from the seed, as many at a time as
// the device that is stood in for would hold. A block that cannot go on leaves its place to
// another, so blocks may wait for each other; where none can go on, the launch fails and says what
// they wait for.
//
// A kernel of a dependent launch begins before the kernel in front of it has run at all: that one
// runs when the first thread waits for it, so what is read before the wait is what was there
// before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu_host/simt/block.hpp"

namespace goldenrule::simt {

inline constexpr int kMultiprocessors = 2;
inline constexpr int kThreadsPerMultiprocessor = 2048;
inline constexpr int kBlocksPerMultiprocessor = 32;
inline constexpr std::size_t kMultiprocessorSharedBytes = 228 << 10;

/// Blocks of a kernel that a multiprocessor holds.
[[nodiscard]] int resident_blocks(int threads, std::size_t shared_bytes);

struct Launch {
  std::string name;
  std::function<void()> kernel;  ///< what each thread calls
  unsigned blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  bool dependent = false;                    ///< programmatic dependent launch
  std::shared_ptr<Launch> predecessor = {};  ///< of a dependent launch, if it has not run yet
};

/// Runs a kernel, and its predecessor when or after it waits for it. "" or what went wrong.
[[nodiscard]] std::string run(Launch& launch);

/// What went wrong last, once.
[[nodiscard]] std::string take_failure();

/// The seed of all orders, from the environment variable GOLDENRULE_GPU_HOST_SEED, or 1.
[[nodiscard]] std::uint32_t seed();

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Ends the launch that runs. From a thread of a kernel, or from what the scheduler calls.
[[noreturn]] void fail(const std::string& what);

class Grid {
 public:
  explicit Grid(Launch& launch);

  std::string run();

  void call_kernel() const { launch_.kernel(); }
  [[nodiscard]] unsigned blocks() const { return launch_.blocks; }
  [[nodiscard]] unsigned random() { return static_cast<unsigned>(random_()) >> 1; }
  /// Something happened that others may wait for.
  void progress() { ++progress_; }
  [[nodiscard]] bool has_failed() const { return !failure_.empty(); }
  void wait_for_predecessor();
  void store_at_end(BulkStores::Write write) { late_.push_back(std::move(write)); }
  void set_failure(const std::string& what);

 private:
  void run_blocks();
  void admit();
  /// One slice of a resident block; whether anything came of it.
  bool run_slice(std::size_t i);
  void run_predecessor();

  Launch& launch_;
  Random random_;
  std::vector<unsigned> order_;  // blocks that have not begun, the next one last
  std::vector<std::unique_ptr<Block>> resident_;
  std::size_t capacity_;
  std::uint64_t progress_ = 0;
  bool wants_predecessor_ = false;
  std::vector<BulkStores::Write> late_;  // visible when the kernel has ended
  std::string failure_;
};

}  // namespace goldenrule::simt
