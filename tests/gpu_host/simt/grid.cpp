// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/grid.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::simt {
namespace {

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

void fail(const std::string& what) { throw Failure(what); }

Grid::Grid(const Launch& launch, const Grid* front)
    : launch_(launch),
      front_(front),
      random_(spread(seed() + 0x9e3779b9U * ++launches)),
      order_(launch.blocks / launch.cluster),
      barriers_(launch.blocks / launch.cluster),
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

bool Grid::step() {
  // While one block goes on alone no other is begun: that is a possible order too, and fast.
  for (std::size_t tried = 0; tried < resident_.size(); ++tried) {
    next_ = (next_ + 1) % resident_.size();
    if (run_slice(next_)) return true;
    if (has_failed()) return false;
  }
  return begin_blocks() && (run_slice(resident_.size() - 1) || !order_.empty() ||
                            (launch_.cluster > 1 && !has_failed()));
}

bool Grid::begin_blocks() {
  // Clusters that are larger than the device run one at a time.
  const std::size_t room = std::max<std::size_t>(capacity_, launch_.cluster);
  if (order_.empty() || resident_.size() + launch_.cluster > room) return false;
  for (unsigned rank = 0; rank < launch_.cluster; ++rank) {
    resident_.push_back(std::make_unique<Block>(*this,
                                                Index{order_.back() * launch_.cluster + rank},
                                                launch_.threads, launch_.shared_bytes));
  }
  order_.pop_back();
  return true;
}

void Grid::synchronize_cluster() {
  if (!launch_.has_clusters) fail("the barrier of a cluster in a launch without clusters");
  ClusterBarrier& b = barriers_[this_block().place().x / launch_.cluster];
  const unsigned generation = b.generation;
  progress();
  if (++b.arrived == launch_.cluster * static_cast<unsigned>(launch_.threads)) {
    b.arrived = 0;
    ++b.generation;
    return;
  }
  this_block().wait_until("the barrier of a cluster", [&] { return b.generation != generation; });
}

const std::byte* Grid::shared_of(unsigned rank) const {
  if (rank >= launch_.cluster) fail("a rank that the cluster does not have");
  const Block& mine = this_block();
  const unsigned place = mine.place().x / launch_.cluster * launch_.cluster + rank;
  if (place == mine.place().x) return shared_window();
  for (const auto& block : resident_) {
    if (block->place().x == place) return block->stored_shared();
  }
  fail("the shared memory of a block that has ended is read");
}

bool Grid::run_slice(std::size_t i) {
  Block& block = *resident_[i];
  const std::uint64_t before = progress_;
  block.enter();
  const Block::Pause pause = block.run();
  if (has_failed()) return false;
  if (pause != Block::Pause::kDone) {
    block.leave();
    return pause == Block::Pause::kGaveWay || progress_ != before;
  }
  if (!block.lets_next_begin) ++letting_;
  resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
  return true;
}

void Grid::finish() {
  for (const BulkStores::Write& write : late_) write();
  late_.clear();
  finished_ = true;
}

std::string Grid::waiting() const {
  std::string text = launch_.name + ": nothing can go on";
  if (resident_.empty()) return text;
  const Block& block = *resident_.front();
  return text + "; block " + std::to_string(block.place().x) + ": " + block.waiting();
}

void Grid::wait_for_front() const {
  if (front_ == nullptr) return;
  this_block().wait_until("the kernel in front", [this] { return front_->finished_; });
}

void Grid::let_next_begin() {
  Block& block = this_block();
  if (block.lets_next_begin) return;
  block.lets_next_begin = true;
  ++letting_;
  block.give_way();
}

namespace {

/// The kernels of a chain, from the first that is not done to the last that has begun.
class Chain {
 public:
  explicit Chain(const std::vector<Launch>& chain)
      : random_(spread(seed() + static_cast<std::uint32_t>(chain.size()))) {
    for (const Launch& launch : chain) {
      const Grid* front = grids_.empty() ? nullptr : grids_.back().get();
      grids_.push_back(std::make_unique<Grid>(launch, front));
    }
  }

  std::string run() {
    while (first_ < grids_.size()) {
      while (begun_ < grids_.size() && grids_[begun_ - 1]->lets_next_begin()) ++begun_;
      if (std::string failure = step(); !failure.empty()) return failure;
      while (first_ < begun_ && grids_[first_]->is_done()) ++first_;
    }
    return "";
  }

 private:
  /// The newest kernel that can go on goes on; one time in eight any may.
  std::string step() {
    const std::size_t count = begun_ - first_;
    std::size_t i = begun_;
    if (count > 1 && random_() % 64 < 8) i = first_ + 1 + random_() % count;
    for (std::size_t tried = 0; tried < count; ++tried) {
      i = i == first_ ? begun_ - 1 : i - 1;
      Grid& grid = *grids_[i];
      if (grid.is_done()) continue;
      try {
        const bool went_on = grid.step();
        if (grid.has_failed()) return grid.failure();
        if (grid.is_done()) grid.finish();
        if (went_on) return "";
      } catch (const Failure& e) {
        return grid.name() + ": " + e.what();
      }
    }
    return grids_[first_]->waiting();
  }

  std::vector<std::unique_ptr<Grid>> grids_;
  std::size_t first_ = 0, begun_ = 1;
  Random random_;
};

}  // namespace

std::string run(const std::vector<Launch>& chain) {
  const std::string failure = Chain(chain).run();
  return failure.empty() ? "" : failure + " (seed " + std::to_string(seed()) + ")";
}

}  // namespace goldenrule::simt
