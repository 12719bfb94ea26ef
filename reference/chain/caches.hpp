// SPDX-License-Identifier: Apache-2.0
//
// Caches of attention in a chain. The cache of a request is a list of rows, one for each of its
// tokens: the key and the value of all heads. A server appends rows, drops those behind a length,
// and shares and reuses pages; what a row holds does not change. So of each request the judge
// remembers, by position, a digest of the row as its calls have shown it:
//
//   - a row that a call brings (k, v) is in the cache later, rounded once to the type of the cache,
//     as far as it stayed;
//   - a row that stands in the cache is the same row in each later call.
//
// Only rows that a query sees are compared: a table may name anything where a window ends. A row
// of which no call has said anything is taken for right. Which tokens of a call stay is said by
// accepted_counts, else by the draft acceptance of the request, else by the length in its next
// call; those behind are rejected, and remembered as such, so that they can be told where they turn
// up.
//
// The length of a cache is where the rows of a call begin: kv_lens with block_kv separate, else the
// position of the first query. It is what the call says (positions), and what was kept. A
// draft acceptance knows two lengths, the target's (start + committed) and the draft's (draft_len).
// Where they differ, the first call behind one tells whose cache this is, and it stays that one's.
//
// Requests with a common prefix may share pages. A request at position 0 again, or restored from
// its own earlier position, has other rows from there on, since what is computed again may round
// otherwise; so it is where the layer with states says that. Restored from another request, it has
// the rows of that one: of its present life, or of one before it began again, whose pages a cache
// of prefixes may have kept.
//
// Memory: 16 bytes a row and 16 for each place of the pool, no values. Requests beyond
// Options::most_bytes are forgotten, the longest unused first.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fixtures/call/chain_rows.hpp"
#include "reference/attention/plan/plan.hpp"
#include "reference/chain/acceptances.hpp"

namespace goldenrule::chain {

struct CacheRow {
  std::uint64_t digest = 0;
  std::int32_t place = -1;  ///< page * P + slot where it was seen; -1: nowhere yet
  std::int32_t call = -1;   ///< the last one that has shown it; -1: none

  [[nodiscard]] bool known() const { return call >= 0; }
};

/// Row `t` of those that are known by position, which may be unknown.
[[nodiscard]] inline CacheRow row_at(const std::vector<CacheRow>& rows, std::int64_t t) {
  return t >= 0 && t < std::ssize(rows) ? rows[static_cast<std::size_t>(t)] : CacheRow();
}

/// What a place of the pool holds.
struct HeldRow {
  std::uint64_t digest = 0;
  std::int32_t since = 0;  ///< the first call that found it there, of those without another between
};

inline constexpr std::size_t kMostRejected = 4096;

/// Rows that a request had before it began again.
using FormerRows = std::shared_ptr<const std::vector<CacheRow>>;
inline constexpr std::size_t kMostLives = 4;

struct Cache {
  std::int64_t call = -1;            ///< that it was last in
  std::int64_t base = 0;             ///< its length before that call
  std::int64_t given = 0;            ///< tokens of that call
  std::optional<std::int64_t> kept;  ///< of these; absent: not said
  bool loose = true;                 ///< nothing says its length
  std::int64_t turned = -1;          ///< the call in which it began again
  std::vector<CacheRow> rows;        ///< by position
  std::deque<std::pair<std::int64_t, std::uint64_t>> rejected;  ///< position, digest
  std::deque<FormerRows> former;                                ///< its own, the latest first
  std::vector<FormerRows> inherited;  ///< of the request that it was restored from

  [[nodiscard]] CacheRow at(std::int64_t t) const { return row_at(rows, t); }
  void put(std::int64_t t, const CacheRow& row);
  /// Drops rows from `length` on; what is known of them is rejected.
  void crop(std::int64_t length);
  /// The request begins again from `length`: the rows it had are those of a former life.
  void begin_again(std::int64_t length);
  /// Whether the request that this one was restored from once had such a row there.
  [[nodiscard]] bool once_had(std::int64_t t, std::uint64_t digest) const;
  [[nodiscard]] std::uint64_t bytes() const;
};

/// What all calls of the layer have in common.
struct CacheKind {
  std::int64_t HV = 0, H = 0, K = 0, V = 0;
  std::int64_t page_size = 0;  ///< 0: no call had a cache
  call::KvLayout layout = call::KvLayout::kNhd;
  call::DType keys = call::DType::kF32, values = call::DType::kF32;  ///< of the cache
};

/// Whose cache the layer has, as draft acceptances tell lengths.
enum class Role : std::uint8_t { kUnknown, kTarget, kDraft };

class Caches {
 public:
  Caches(Memory& memory, Acceptances& acceptances) : memory_(memory), acceptances_(acceptances) {}

  /// Whether the call belongs to the layer. Throws Error where its rows take too much memory.
  [[nodiscard]] bool admit(const Call& call, const call::Record& record, const call::Dims& dims,
                           std::vector<Finding>& findings);
  /// A call of the layer. Throws Error for one that makes no sense.
  void add(const Call& call, const call::Record& record, std::vector<Finding>& findings);
  /// The draft acceptance `call` beside the counts of the target's attention.
  void agree(const Call& call, std::vector<Finding>& findings);
  /// The layer with states says that a request begins again, or goes back to `position`; `since`:
  /// its last call there. A turn that the cache has shown after that is the same one.
  void turn(std::int64_t request, std::int64_t since, std::int64_t position);
  /// A call is missing: requests may have begun anew in it.
  void forget_all();

 private:
  friend class CacheWalk;
  void trim(std::int64_t index);

  Memory& memory_;
  Acceptances& acceptances_;
  std::optional<CacheKind> kind_;
  /// The types of k and v that were brought before that of the cache was known.
  std::optional<std::pair<call::DType, call::DType>> brought_;
  Role role_ = Role::kUnknown;
  std::map<std::int64_t, Cache> of_requests_;
  std::vector<HeldRow> held_;  ///< by place, in the last call with a cache
};

}  // namespace goldenrule::chain
