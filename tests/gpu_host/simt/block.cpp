// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::simt {
namespace {

Thread* running_thread = nullptr;
Block* running_block = nullptr;

constexpr std::uint32_t bit(int lane) { return std::uint32_t{1} << lane; }

}  // namespace

Thread& this_thread() { return *running_thread; }
Block& this_block() { return *running_block; }

Block::Block(Grid& grid, Index place, int threads, std::size_t shared_bytes)
    : grid_(grid),
      place_(place),
      threads_(static_cast<std::size_t>(threads)),
      warps_((static_cast<std::size_t>(threads) + kWarpSize - 1) / kWarpSize),
      shared_bytes_(shared_bytes),
      shared_(shared_bytes, std::byte{0xff}),  // NaN in every type, and no index
      live_(threads) {
  for (int i = 0; i < threads; ++i) {
    Thread& t = threads_[static_cast<std::size_t>(i)];
    t.place.x = static_cast<unsigned>(i);
    t.fiber.start(thread_entry, this);
    Warp& w = warp_of(t);
    w.exists |= bit(i % kWarpSize);
    w.ready |= bit(i % kWarpSize);
  }
}

void Block::thread_entry(void* block) {
  auto& self = *static_cast<Block*>(block);
  try {
    self.grid_.call_kernel();
    self.end_thread();
  } catch (const Failure& failure) {
    self.grid_.set_failure(failure.what());
  }
  while (true) this_thread().fiber.pause();  // never resumed
}

void Block::enter() {
  close_window_behind(shared_bytes_);
  std::copy(shared_.begin(), shared_.end(), shared_window());
}

void Block::leave() { std::copy_n(shared_window(), shared_bytes_, shared_.begin()); }

void Block::end_thread() {
  Thread& t = this_thread();
  if (t.stores.any_unread()) fail("a thread ends before its bulk stores have read their source");
  if (t.products.pending() > 0) fail("a thread ends before its products are done");
  for (BulkStores::Write& write : t.stores.take_read()) grid_.store_at_end(std::move(write));
  Warp& w = warp_of(t);
  const std::uint32_t me = bit(static_cast<int>(t.place.x) % kWarpSize);
  t.waits_for = "";
  w.done |= me;
  w.ready &= ~me;
  if (--live_ == 0 && bulk_copies_.any()) fail("a block ends while bulk copies are under way");
  grid_.progress();
}

void Block::pause_running() {
  Fiber& fiber = this_thread().fiber;
  fiber.pause();
}

void Block::wait(bool (*condition)(void*), void* data, const char* what) {
  Thread& t = this_thread();
  Warp& w = warp_of(t);
  const std::uint32_t me = bit(static_cast<int>(t.place.x) % kWarpSize);
  t.condition = condition;
  t.condition_data = data;
  t.waits_for = what;
  w.ready &= ~me;
  w.waiting |= me;
  pause_running();
}

void Block::poll(const char* what) {
  Thread& t = this_thread();
  Warp& w = warp_of(t);
  const std::uint32_t me = bit(static_cast<int>(t.place.x) % kWarpSize);
  t.waits_for = what;
  w.ready &= ~me;
  w.polling |= me;
  pause_running();
}

void Block::give_way() {
  gives_way_ = true;
  pause_running();
}

void Block::perhaps_give_way() {
  if (grid_.random() % 4 == 0) give_way();
}

void Block::meet(std::uint32_t mask, Meeting what, const char* name, void* argument) {
  Thread& t = this_thread();
  Warp& w = warp_of(t);
  const int lane = static_cast<int>(t.place.x) % kWarpSize;
  t.argument = argument;
  t.waits_for = name;
  if (w.meeting == 0) {
    w.what = what;
    w.mask = mask & w.exists;
  }
  if (w.what != what || w.mask != (mask & w.exists)) {
    fail(std::string("lanes of a warp meet at different instructions: ") + name);
  }
  if ((w.mask & w.done) != 0) fail(std::string(name) + " expects a lane that has ended");
  w.meeting |= bit(lane);
  w.ready &= ~bit(lane);
  if (w.meeting != w.mask) {
    pause_running();
    return;
  }
  Lanes lanes{};
  for (int i = 0; i < kWarpSize; ++i) {
    if ((w.mask & bit(i)) == 0) continue;
    lanes[static_cast<std::size_t>(i)] =
        threads_[t.place.x / kWarpSize * kWarpSize + static_cast<unsigned>(i)].argument;
  }
  what(lanes);
  w.ready |= w.meeting;
  w.meeting = 0;
  grid_.progress();
}

Block::Barrier& Block::barrier_at(int barrier) {
  if (barrier < 0 || barrier >= kBarriers) fail("a barrier is numbered 0 to 15");
  return barriers_[static_cast<std::size_t>(barrier)];
}

void Block::Barrier::arrive(SourcePlace from) {
  if (arrived++ == 0) {
    place = from;
    return;
  }
  if (from.line == place.line && std::strcmp(from.file, place.file) == 0) return;
  const auto name = [](const SourcePlace& x) {
    return std::string(x.file) + ":" + std::to_string(x.line);
  };
  fail("threads of a block come to one barrier at two places, " + name(place) + " and " +
       name(from));
}

bool Block::completes(Barrier& b, int expected) {
  // Threads that have ended are not waited for where all are expected.
  if (b.arrived < (expected == 0 ? live_ : expected)) return false;
  b.arrived = 0;
  ++b.generation;
  grid_.progress();
  return true;
}

void Block::synchronize(int barrier, int expected, SourcePlace place) {
  Barrier& b = barrier_at(barrier);
  const unsigned generation = b.generation;
  b.arrive(place);
  wait_until(expected == 0 ? "__syncthreads" : "a named barrier",
             [&] { return b.generation != generation || completes(b, expected); });
}

void Block::resume(std::size_t w, int lane) {
  running_block = this;
  running_thread = &threads_[w * kWarpSize + static_cast<std::size_t>(lane)];
  running_thread->fiber.resume();
  running_thread = nullptr;
}

bool Block::run_warp(std::size_t w) {
  Warp& warp = warps_[w];
  running_block = this;
  for (std::uint32_t left = warp.waiting; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    Thread& t = threads_[w * kWarpSize + static_cast<std::size_t>(lane)];
    if (!t.condition(t.condition_data)) continue;
    warp.waiting &= ~bit(lane);
    warp.ready |= bit(lane);
  }
  if (warp.ready == 0) return false;
  const auto draw = static_cast<std::uint32_t>(grid_.random());
  const int turn = static_cast<int>(draw % kWarpSize);
  std::uint32_t left = std::rotr(warp.ready, turn);
  // Sometimes only some of the lanes: those left behind see what the others did meanwhile.
  const std::uint32_t some = left & (draw >> 5);
  if ((draw >> 30) == 0 && some != 0) left = some;
  const bool upwards = (draw & 0x20000000U) != 0;
  while (left != 0 && !grid_.has_failed() && !gives_way_) {
    const int place = upwards ? std::countr_zero(left) : 31 - std::countl_zero(left);
    left &= ~bit(place);
    const int lane = (place + turn) % kWarpSize;
    if ((warp.ready & bit(lane)) != 0) resume(w, lane);
  }
  return true;
}

bool Block::run_pollers() {
  bool any = false;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    any |= warps_[w].polling != 0;
    warps_[w].ready |= warps_[w].polling;
    warps_[w].polling = 0;
  }
  return any;
}

Block::Pause Block::run() {
  gives_way_ = false;
  bool polled = false;
  while (true) {
    const std::size_t first = grid_.random() % warps_.size();
    bool ran = false;
    for (std::size_t i = 0; i < warps_.size() && !ran; ++i) {
      ran = run_warp((first + i) % warps_.size());
    }
    if (grid_.has_failed()) return Pause::kDone;
    if (gives_way_) return Pause::kGaveWay;
    if (ran) continue;
    if (live_ == 0) return Pause::kDone;
    if (polled || !run_pollers()) return Pause::kStalled;
    polled = true;
  }
}

std::string Block::waiting() const {
  std::map<std::string, std::vector<unsigned>> by_reason;
  for (const Thread& t : threads_) {
    const Warp& w = warps_[t.place.x / kWarpSize];
    if ((w.done & bit(static_cast<int>(t.place.x) % kWarpSize)) == 0) {
      by_reason[t.waits_for].push_back(t.place.x);
    }
  }
  std::string text;
  for (const auto& [reason, threads] : by_reason) {
    text += (text.empty() ? "" : "; ") + std::to_string(threads.size()) + " threads (" +
            std::to_string(threads.front()) + " first) wait for " + reason;
  }
  return text;
}

}  // namespace goldenrule::simt
