// SPDX-License-Identifier: Apache-2.0
//
// A block of threads on the CPU. Each thread is a fiber that runs until it has to wait: for the
// other lanes of its warp, at a barrier, for a copy. Which thread runs next is drawn from a seed,
// so threads meet in any order, and what no barrier orders comes in another order with another
// seed.
//
// One thread runs at a time: memory itself is sequentially consistent. Mistakes of order are seen
// where a rendezvous is missing; a fence that only weaker memory needs is not missed by anyone.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu_host/simt/copies.hpp"
#include "tests/gpu_host/simt/fiber.hpp"
#include "tests/gpu_host/simt/products.hpp"

namespace goldenrule::simt {

inline constexpr int kWarpSize = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

using Random = std::minstd_rand;

/// A thread of a block, with what it has begun and not waited for.
struct Thread {
  Fiber fiber;
  Index place;
  const char* waits_for = "";
  bool (*condition)(void*) = nullptr;
  void* condition_data = nullptr;
  void* argument = nullptr;  ///< of the rendezvous at which it is
  AsyncCopies copies;
  BulkStores stores;
  Products products;
};

/// What the lanes of a warp brought to a rendezvous; nullptr for those that take no part.
using Lanes = std::array<void*, kWarpSize>;
using Meeting = void (*)(const Lanes&);

/// The lanes of a warp by what they can do next.
struct Warp {
  std::uint32_t ready = 0, waiting = 0, polling = 0, meeting = 0, done = 0, exists = 0;
  Meeting what = nullptr;
  std::uint32_t mask = 0;  ///< who is expected
};

class Grid;

/// Where a barrier is called. clang 14 has no std::source_location.
struct SourcePlace {
  const char* file = "";
  int line = 0;
};

class Block {
 public:
  static constexpr int kBarriers = 16;

  Block(Grid& grid, Index place, int threads, std::size_t shared_bytes);

  enum class Pause {
    kDone,     ///< all threads have ended
    kStalled,  ///< nothing runs before another block or kernel has done something
    kGaveWay,  ///< another block may go on
  };
  /// Runs threads until one of these; the block must have been entered.
  Pause run();
  /// Brings its shared memory into the window, and takes it out again.
  void enter();
  void leave();
  /// Its shared memory while it is not in the window.
  [[nodiscard]] const std::byte* stored_shared() const { return shared_.data(); }

  [[nodiscard]] Index place() const { return place_; }
  [[nodiscard]] int threads() const { return static_cast<int>(threads_.size()); }
  [[nodiscard]] Grid& grid() const { return grid_; }
  [[nodiscard]] BulkCopies& bulk_copies() { return bulk_copies_; }
  /// One line: what the threads wait for that have not ended.
  [[nodiscard]] std::string waiting() const;

  // Called by the thread that runs.
  void meet(std::uint32_t mask, Meeting what, const char* name, void* argument);
  /// `expected`: how many threads; 0: all that have not ended. All must come from `place`: a
  /// barrier that two branches reach at two places in the code is what synccheck refuses.
  void synchronize(int barrier, int expected, SourcePlace place);
  template <class F>
  void wait_until(const char* what, F&& ready) {
    if (ready()) return;
    using Condition = std::remove_cvref_t<F>;
    Condition condition(std::forward<F>(ready));
    wait([](void* f) { return (*static_cast<Condition*>(f))(); }, &condition, what);
  }
  /// The running thread looks again later; all others come first.
  void poll(const char* what);
  /// Another block or kernel goes on here.
  void give_way();
  /// The same one time in four: where blocks see what others do.
  void perhaps_give_way();
  bool lets_next_begin = false;  ///< it has let a dependent kernel begin
  [[nodiscard]] int live_threads() const { return live_; }

 private:
  struct Barrier {
    int arrived = 0;
    unsigned generation = 0;
    SourcePlace place;  ///< of the first to arrive

    void arrive(SourcePlace from);
  };

  static void thread_entry(void* block);
  Barrier& barrier_at(int barrier);
  bool completes(Barrier& b, int expected);
  void wait(bool (*condition)(void*), void* data, const char* what);
  void pause_running();
  void end_thread();
  bool run_warp(std::size_t w);
  bool run_pollers();
  void resume(std::size_t w, int lane);
  [[nodiscard]] Warp& warp_of(const Thread& t) { return warps_[t.place.x / kWarpSize]; }

  Grid& grid_;
  Index place_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<Barrier, kBarriers> barriers_{};
  BulkCopies bulk_copies_;
  std::size_t shared_bytes_;
  std::vector<std::byte> shared_;
  int live_;
  bool gives_way_ = false;
};

/// What runs now; for the functions that a kernel calls.
[[nodiscard]] Thread& this_thread();
[[nodiscard]] Block& this_block();

}  // namespace goldenrule::simt
