// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous copies, as late as their waits allow and as early as nothing forbids: the
// destination is NaN from the moment a copy begins, its bytes arrive when somebody waits for them,
// and the source is read then. So what is read too early, overwritten too early or waited for by a
// group too few is wrong in every run, where a GPU's copies usually have arrived.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace goldenrule::simt {

/// cp.async of one thread.
class AsyncCopies {
 public:
  /// The first `bytes` of `size` are copied, the others become 0.
  void begin(void* to, const void* from, std::size_t size, std::size_t bytes);
  void commit();
  /// All groups but the latest `keep`.
  void wait_for_all_but(std::size_t keep);
  void wait_for_all();
  /// They land when somebody waits for the barrier, and are one arrival then.
  void arrive_at(std::uint64_t& barrier);

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t size, bytes;
    std::array<std::byte, 16> before;  // what the source was
  };
  using Group = std::vector<Copy>;
  static void land(const Group& group);

  Group open_;
  std::vector<Group> groups_;
};

/// Counted barriers (mbarrier) as they lie in shared memory, in 8 bytes.
struct CountedBarrier {
  std::uint16_t expected, missing;  ///< arrivals of a phase, and those still to come
  std::int16_t missing_pieces;      ///< of 16 bytes
  std::uint16_t parity;             ///< of the phase that runs
};
static_assert(sizeof(CountedBarrier) == sizeof(std::uint64_t));

void initialize(std::uint64_t& barrier, std::uint32_t arrivals);
/// One arrival, and `bytes` more bytes to come before the phase can end.
void arrive(std::uint64_t& barrier, std::uint32_t bytes);
/// Whether the phase of this parity has ended; if not, what copies of this barrier are under way
/// land first.
[[nodiscard]] bool phase_has_ended(std::uint64_t& barrier, std::uint32_t parity);

/// Copies of a block into its shared memory whose bytes a barrier counts.
class BulkCopies {
 public:
  using Deliver = std::function<void()>;

  void begin(std::uint64_t& barrier, std::size_t bytes, Deliver deliver);
  void land(std::uint64_t& barrier);
  [[nodiscard]] bool any() const { return !under_way_.empty(); }

 private:
  struct Copy {
    std::uint64_t* barrier;
    std::size_t bytes;
    Deliver deliver;
  };
  std::vector<Copy> under_way_;
};

/// Copies of a thread out of shared memory. The source is read at the wait for reads; the bytes
/// reach memory at the wait for stores, or else when the kernel has ended.
class BulkStores {
 public:
  using Write = std::function<void()>;
  using Read = std::function<Write()>;

  void begin(Read read) { open_.push_back(std::move(read)); }
  void commit();
  /// All groups but the latest `keep`.
  void wait_for_reads(std::size_t keep = 0);
  void wait_for_stores(std::size_t keep = 0);
  /// Whether some have not read their source yet.
  [[nodiscard]] bool any_unread() const;
  /// Those that were read and that nobody has waited for.
  [[nodiscard]] std::vector<Write> take_read();

 private:
  struct Group {
    std::vector<Read> unread;
    std::vector<Write> read;
  };
  std::vector<Read> open_;
  std::vector<Group> groups_;
};

/// Fails the launch: the source of a copy has changed while it was under way.
[[noreturn]] void fail_for_changed_source();

/// Begins a copy of `bytes` to shared memory; addresses and sizes as the instruction asks.
void begin_bulk_copy(void* shared, const void* global, std::size_t bytes, std::uint64_t& barrier);
void begin_bulk_store(void* global, const void* shared, std::size_t bytes);

}  // namespace goldenrule::simt
