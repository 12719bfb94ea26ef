// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/copies.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tests/gpu_host/simt/grid.hpp"

namespace goldenrule::simt {
namespace {

constexpr int kUndefined = 0xff;  // NaN in every type

void expect_aligned(const void* p, std::size_t size, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(p) % size != 0) {
    fail(std::string(what) + " is not aligned to " + std::to_string(size) + " bytes");
  }
}

CountedBarrier load(const std::uint64_t& barrier) { return std::bit_cast<CountedBarrier>(barrier); }

int pieces_of(std::size_t bytes) {
  if (bytes % 16 != 0) fail("a barrier counts a number of bytes that is no multiple of 16");
  return static_cast<int>(bytes / 16);
}

/// Stores a barrier, on to the next phase if this one is complete.
void store(std::uint64_t& barrier, CountedBarrier b) {
  if (b.missing == 0 && b.missing_pieces == 0) {
    b.missing = b.expected;
    b.parity = b.parity == 0 ? 1 : 0;
  }
  barrier = std::bit_cast<std::uint64_t>(b);
  this_block().grid().progress();
}

}  // namespace

void fail_for_changed_source() { fail("the source of a copy has changed while it was under way"); }

void AsyncCopies::begin(void* to, const void* from, std::size_t size, std::size_t bytes) {
  expect_aligned(to, size, "the destination of an asynchronous copy");
  expect_aligned(from, size, "the source of an asynchronous copy");
  std::memset(to, kUndefined, size);
  Copy copy{to, from, size, bytes, {}};
  if (bytes > 0) std::memcpy(copy.before.data(), from, bytes);
  open_.push_back(copy);
}

void AsyncCopies::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void AsyncCopies::land(const Group& group) {
  for (const Copy& c : group) {
    if (c.bytes > 0) {
      if (std::memcmp(c.before.data(), c.from, c.bytes) != 0) fail_for_changed_source();
      std::memcpy(c.to, c.from, c.bytes);
    }
    std::memset(static_cast<std::byte*>(c.to) + c.bytes, 0, c.size - c.bytes);
  }
}

void AsyncCopies::wait_for_all_but(std::size_t keep) {
  while (groups_.size() > keep) {
    land(groups_.front());
    groups_.erase(groups_.begin());
  }
}

void AsyncCopies::wait_for_all() {
  wait_for_all_but(0);
  land(open_);
  open_.clear();
}

void AsyncCopies::arrive_at(std::uint64_t& barrier) {
  Group all;
  for (const Group& group : groups_) all.insert(all.end(), group.begin(), group.end());
  all.insert(all.end(), open_.begin(), open_.end());
  groups_.clear();
  open_.clear();
  this_block().bulk_copies().begin(barrier, 0, [all = std::move(all), &barrier] {
    land(all);
    arrive(barrier, 0);
  });
}

void initialize(std::uint64_t& barrier, std::uint32_t arrivals) {
  expect_aligned(&barrier, sizeof barrier, "a barrier");
  const auto count = static_cast<std::uint16_t>(arrivals);
  barrier = std::bit_cast<std::uint64_t>(
      CountedBarrier{.expected = count, .missing = count, .missing_pieces = 0, .parity = 0});
}

void arrive(std::uint64_t& barrier, std::uint32_t bytes) {
  CountedBarrier b = load(barrier);
  if (b.missing == 0) fail("a barrier is arrived at more often than it was made for");
  --b.missing;
  b.missing_pieces = static_cast<std::int16_t>(b.missing_pieces + pieces_of(bytes));
  store(barrier, b);
}

bool phase_has_ended(std::uint64_t& barrier, std::uint32_t parity) {
  if (load(barrier).parity != (parity & 1U)) return true;
  this_block().bulk_copies().land(barrier);
  return load(barrier).parity != (parity & 1U);
}

void BulkCopies::begin(std::uint64_t& barrier, std::size_t bytes, Deliver deliver) {
  under_way_.push_back({&barrier, bytes, std::move(deliver)});
}

void BulkCopies::land(std::uint64_t& barrier) {
  const auto first = std::stable_partition(under_way_.begin(), under_way_.end(),
                                           [&](const Copy& c) { return c.barrier != &barrier; });
  std::vector<Copy> due(std::make_move_iterator(first), std::make_move_iterator(under_way_.end()));
  under_way_.erase(first, under_way_.end());
  for (const Copy& c : due) {
    c.deliver();
    CountedBarrier b = load(barrier);
    b.missing_pieces = static_cast<std::int16_t>(b.missing_pieces - pieces_of(c.bytes));
    store(barrier, b);
  }
}

void BulkStores::commit() { groups_.push_back({std::exchange(open_, {}), {}}); }

void BulkStores::wait_for_reads(std::size_t keep) {
  for (std::size_t i = 0; i + keep < groups_.size(); ++i) {
    for (const Read& read : groups_[i].unread) groups_[i].read.push_back(read());
    groups_[i].unread.clear();
  }
}

void BulkStores::wait_for_stores(std::size_t keep) {
  wait_for_reads(keep);
  while (groups_.size() > keep) {
    for (const Write& write : groups_.front().read) write();
    groups_.erase(groups_.begin());
  }
}

bool BulkStores::any_unread() const {
  return !open_.empty() || std::any_of(groups_.begin(), groups_.end(),
                                       [](const Group& g) { return !g.unread.empty(); });
}

std::vector<BulkStores::Write> BulkStores::take_read() {
  std::vector<Write> all;
  for (Group& group : groups_)
    std::move(group.read.begin(), group.read.end(), std::back_inserter(all));
  groups_.clear();
  return all;
}

void begin_bulk_copy(void* shared, const void* global, std::size_t bytes, std::uint64_t& barrier) {
  expect_aligned(shared, 16, "the destination of a bulk copy");
  expect_aligned(global, 16, "the source of a bulk copy");
  if (bytes % 16 != 0) fail("a bulk copy of a size that is no multiple of 16 bytes");
  std::memset(shared, kUndefined, bytes);
  const auto* from = static_cast<const std::byte*>(global);
  this_block().bulk_copies().begin(barrier, bytes,
                                   [=, before = std::vector<std::byte>(from, from + bytes)] {
                                     if (std::memcmp(before.data(), from, bytes) != 0)
                                       fail_for_changed_source();
                                     std::memcpy(shared, from, bytes);
                                   });
}

void begin_bulk_store(void* global, const void* shared, std::size_t bytes) {
  expect_aligned(shared, 16, "the source of a bulk store");
  expect_aligned(global, 16, "the destination of a bulk store");
  if (bytes % 16 != 0) fail("a bulk store of a size that is no multiple of 16 bytes");
  this_thread().stores.begin([=]() -> BulkStores::Write {
    const auto* from = static_cast<const std::byte*>(shared);
    return [global, data = std::vector<std::byte>(from, from + bytes)] {
      std::memcpy(global, data.data(), data.size());
    };
  });
}

}  // namespace goldenrule::simt
