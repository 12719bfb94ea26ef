// SPDX-License-Identifier: Apache-2.0
//
// Launched kernels on the CPU. The blocks of a kernel begin in an order drawn from the seed, as
// many at a time as the device that is stood in for would hold. A block that cannot go on leaves
// its place to another, so blocks may wait for each other; where none can go on, the launch fails
// and says what they wait for.
//
// A kernel of a dependent launch begins when every block of the one in front of it has let it, or
// has ended; from then on it mostly goes first, and the other goes on when it has to wait. So what
// it reads before it waits is what was there before.
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
  bool dependent = false;     ///< programmatic dependent launch
  unsigned cluster = 1;       ///< blocks of a cluster, which are all there at a time
  bool has_clusters = false;  ///< asked for by the launch, of one block or of more
};

/// Runs kernels, each of which depends on the one in front of it. "" or what went wrong.
[[nodiscard]] std::string run(const std::vector<Launch>& chain);

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
  /// `front`: the kernel that it depends on, or nullptr.
  Grid(const Launch& launch, const Grid* front);

  /// Runs one block for a while. False: none can go on.
  bool step();
  [[nodiscard]] bool is_done() const { return order_.empty() && resident_.empty(); }
  /// Whether every block has let the next kernel begin, or has ended.
  [[nodiscard]] bool lets_next_begin() const { return letting_ == launch_.blocks; }
  /// Makes visible what nobody has waited for.
  void finish();
  /// What its blocks wait for.
  [[nodiscard]] std::string waiting() const;

  void call_kernel() const { launch_.kernel(); }
  [[nodiscard]] const std::string& name() const { return launch_.name; }
  [[nodiscard]] unsigned blocks() const { return launch_.blocks; }
  [[nodiscard]] unsigned random() { return static_cast<unsigned>(random_()) >> 1; }
  /// Something happened that others may wait for.
  void progress() { ++progress_; }
  [[nodiscard]] bool has_failed() const { return !failure_.empty(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  void set_failure(const std::string& what);
  void wait_for_front() const;
  void let_next_begin();
  void store_at_end(BulkStores::Write write) { late_.push_back(std::move(write)); }
  /// The running thread waits for all threads of its cluster.
  void synchronize_cluster();
  /// The shared memory of another block of the running one's cluster, or of itself.
  [[nodiscard]] const std::byte* shared_of(unsigned rank) const;

 private:
  /// Arrivals at the barrier of a cluster.
  struct ClusterBarrier {
    unsigned arrived = 0, generation = 0;
  };

  bool run_slice(std::size_t i);
  bool begin_blocks();

  const Launch& launch_;
  const Grid* front_;
  bool finished_ = false;
  Random random_;
  std::vector<unsigned> order_;  // clusters that have not begun, the next one last
  std::vector<ClusterBarrier> barriers_;
  std::vector<std::unique_ptr<Block>> resident_;
  std::size_t capacity_;
  std::size_t next_ = 0;  // of the resident ones
  unsigned letting_ = 0;  // blocks that let the next kernel begin
  std::uint64_t progress_ = 0;
  std::vector<BulkStores::Write> late_;
  std::string failure_;
};

}  // namespace goldenrule::simt
