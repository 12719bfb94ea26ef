// SPDX-License-Identifier: Apache-2.0
//
// Draft acceptances in a chain. A draft acceptance says how many tokens of its block a request has
// from then on, and what a server does afterwards says the same a second time:
//
//   start      is the position of the request: where the MTP call of the same block stood, and
//              where the draft acceptance before it has ended
//   committed  is the accepted count that the draft acceptance itself says (accepted_counts), that
//   of the
//              MTP call, and where this has none, its count. The next
//              call of the layer with states stands at start + committed
//   lengths    of caches are asked in caches.hpp
//
// What is compared are the outputs as they are stored: whether they are right, the verdict on the
// call alone says. A departure is said once: the request goes on from what the server did. A
// request that begins again (position 0, restored_from) has no draft acceptance behind it, nor has
// any behind a call that is missing. Tokens of a tree have no count.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fixtures/call/chain_rows.hpp"
#include "reference/chain/memory.hpp"

namespace goldenrule::chain {

/// What the last draft acceptance of a request says.
struct Acceptance {
  std::int64_t call = 0, row = 0, start = 0;
  std::optional<std::int64_t> committed = {};  ///< absent: nothing that is stored says it
  std::optional<std::int64_t> draft_len = {};
  /// Those of all rows; -1: padding, or not known.
  std::shared_ptr<const std::vector<std::int64_t>> counts = {};
  bool closed = false;     ///< it said what an MTP call had left open
  bool by_states = false;  ///< the layer with states has gone on
  bool by_cache = false;   ///< the cache has gone on
  bool counted = false;    ///< in Summary::acceptances_followed

  [[nodiscard]] std::optional<std::int64_t> target_len() const {
    return committed ? std::optional(start + *committed) : std::nullopt;
  }
};

/// How many tokens of a draft acceptance a server went on with.
struct Followed {
  std::size_t finding;  ///< of a departure; kRight: none
  std::int64_t row;     ///< of the draft acceptance
  std::int64_t count;

  static constexpr std::size_t kRight = static_cast<std::size_t>(-1);
};

/// Says of departures whether their counts are those of the rows of the draft acceptance moved by
/// some places.
void name_counts(const std::vector<std::int64_t>& counts, const std::vector<Followed>& followed,
                 std::vector<Finding>& findings);

/// "the draft acceptance commits 2 tokens of request 4, the server goes on with 3"
[[nodiscard]] std::string words_of_counts(std::int64_t request, std::int64_t committed,
                                          std::int64_t count);

class Acceptances {
 public:
  explicit Acceptances(Memory& memory) : memory_(memory) {}

  /// A draft acceptance; slice: of the layer with states, whose open counts it says. Throws Error
  /// for one that makes no sense.
  void add(const verdict::Slice& slice, const Call& call, const call::Record& record,
           std::vector<Finding>& findings);
  /// A call of the layer with states, before it is walked through.
  void follow(const Call& call, const call::Record& record, const call::Dims& dims,
              std::vector<Finding>& findings);

  [[nodiscard]] Acceptance* find(std::int64_t request);
  /// What the server did after it is known.
  void count(Acceptance& now) const;
  void forget(std::int64_t request) { of_requests_.erase(request); }
  void forget_all() { of_requests_.clear(); }

 private:
  [[nodiscard]] std::vector<std::int64_t> expected_starts(const Acceptance* before,
                                                          const Request* request) const;
  void check_start(const Call& call, const call::ChainRow& row, const Acceptance& now,
                   std::vector<Finding>& findings) const;
  void meet_states(const verdict::Slice& slice, const Call& call, std::int64_t id, Acceptance& now,
                   std::vector<Followed>& followed, std::vector<Finding>& findings);

  Memory& memory_;
  std::map<std::int64_t, Acceptance> of_requests_;
};

}  // namespace goldenrule::chain
