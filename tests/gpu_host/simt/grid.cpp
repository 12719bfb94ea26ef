// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/grid.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::simt {
namespace {

Grid* running_grid = nullptr;
std::uint32_t launches = 0;

/// Random numbers of the minimal standard generator have 31 bits, of which the lowest are poor for
/// neighbouring seeds: seeds are spread first.
std::uint32_t spread(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

}  // namespace

int resident_blocks(int threads, std::size_t shared_bytes) {
  constexpr std::size_t kOfTheSystem = 1024;  // shared memory of every block
  const auto by_memory =
      static_cast<int>(kMultiprocessorSharedBytes / (shared_bytes + kOfTheSystem));
  return std::min({by_memory, kThreadsPerMultiprocessor / threads, kBlocksPerMultiprocessor});
}

std::uint32_t seed() {
  static const std::uint32_t value = [] {
    const char* text = std::getenv("GOLDENRULE_GPU_HOST_SEED");
    return text == nullptr ? 1U : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  }();
  return value;
}

void fail(const std::string& what) {
  if (Fiber::running() == nullptr) throw Failure(what);
  running_grid->set_failure(what);
  while (true) this_thread().fiber.pause();  // never resumed
}

std::string run(Launch& launch) {
  std::string failure = Grid(launch).run();
  // A kernel that never waited for the one in front of it.
  if (launch.predecessor != nullptr) {
    const std::shared_ptr<Launch> first = std::move(launch.predecessor);
    const std::string of_first = simt::run(*first);
    if (failure.empty()) failure = of_first;
  }
  return failure;
}

Grid::Grid(Launch& launch)
    : launch_(launch),
      random_(spread(seed() + 0x9e3779b9U * ++launches)),
      order_(launch.blocks),
      capacity_(static_cast<std::size_t>(kMultiprocessors *
                                         resident_blocks(launch.threads, launch.shared_bytes))) {
  std::iota(order_.begin(), order_.end(), 0U);
  std::shuffle(order_.begin(), order_.end(), random_);
}

void Grid::set_failure(const std::string& what) {
  if (has_failed()) return;
  failure_ = launch_.name + ", block " + std::to_string(this_block().place().x) + ", thread " +
             std::to_string(this_thread().place.x) + ": " + what;
}

std::string Grid::run() {
  Grid* const before = std::exchange(running_grid, this);
  try {
    run_blocks();
  } catch (const Failure& e) {
    failure_ = launch_.name + ": " + e.what();
  }
  for (const BulkStores::Write& write : late_) write();
  running_grid = before;
  if (has_failed()) {
    failure_ += " (seed " + std::to_string(seed()) + ")";
  }
  return failure_;
}

void Grid::admit() {
  const Index place{order_.back()};
  order_.pop_back();
  resident_.push_back(std::make_unique<Block>(*this, place, launch_.threads, launch_.shared_bytes));
}

void Grid::run_blocks() {
  std::size_t next = 0, fruitless = 0;
  while (!has_failed() && (!order_.empty() || !resident_.empty())) {
    const bool has_room = !order_.empty() && resident_.size() < capacity_;
    // While one block goes on alone no other is begun: that is a possible order too, and fast.
    if (resident_.empty() || (has_room && fruitless >= resident_.size())) {
      admit();
      next = resident_.size() - 1;
      fruitless = 0;
    } else if (fruitless > 2 * resident_.size()) {
      fail("nothing can go on; block " + std::to_string(resident_.front()->place().x) + ": " +
           resident_.front()->waiting());
    }
    if (run_slice(next)) {
      fruitless = 0;
    } else {
      ++fruitless;
    }
    if (!resident_.empty())
      next = fruitless > 0 ? (next + 1) % resident_.size() : random() % resident_.size();
  }
}

bool Grid::run_slice(std::size_t i) {
  Block& block = *resident_[i];
  const std::uint64_t before = progress_;
  block.enter();
  const Block::Pause pause = block.run();
  if (has_failed()) return false;
  if (pause == Block::Pause::kDone) {
    resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  block.leave();
  if (wants_predecessor_ && launch_.predecessor != nullptr) {
    run_predecessor();
    return true;
  }
  return pause == Block::Pause::kGaveWay || progress_ != before;
}

void Grid::run_predecessor() {
  const std::shared_ptr<Launch> first = std::move(launch_.predecessor);
  const std::string failure = simt::run(*first);
  if (!failure.empty()) throw Failure("the kernel in front failed: " + failure);
}

void Grid::wait_for_predecessor() {
  if (launch_.predecessor == nullptr) return;
  wants_predecessor_ = true;
  this_block().wait_until("the kernel in front", [this] { return launch_.predecessor == nullptr; });
}

}  // namespace goldenrule::simt
