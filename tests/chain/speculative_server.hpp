// SPDX-License-Identifier: Apache-2.0
//
// A small server that drafts and verifies, for the tests of caches in chains: one layer with states
// (server.hpp), one layer of attention over a paged cache, and greedy draft acceptance. A test
// makes it err by what it changes between two steps.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/chain/server.hpp"

namespace goldenrule::testing {

/// Whose cache the attention reads, and how its tokens come there.
enum class CacheUse : std::uint8_t {
  kTarget,   ///< the target's, new rows are k and v
  kInCache,  ///< the target's, new rows are written before the call
  kDraft,    ///< the draft's, cut to the start of the block; k and v begin with what was accepted
};

struct SpeculativeOptions {
  CacheUse use = CacheUse::kTarget;
  call::KvLayout layout = call::KvLayout::kNhd;
  bool csr = false;     ///< page_indptr and page_indices
  bool counted = true;  ///< MTP calls have accepted_counts
  std::uint64_t seed = 1;
};

class SpeculativeServer {
 public:
  static constexpr std::int64_t kPages = 32, kP = 4, kH = 2, kHV = 4, kK = 8, kV = 4;
  static constexpr std::int64_t kBlock = Server::kDrafts;  ///< the anchor and three drafts

  struct Live {
    std::int64_t slot = 0;
    std::int64_t length = 0;  ///< of the cache
    std::vector<std::int64_t> pages = {};
    std::int64_t shift = 0;  ///< of rows as they are written
    bool writes = true;
    std::int64_t beyond = 0;  ///< tokens that the states keep beyond those that are committed
  };
  /// A request of a step, and how many tokens its draft acceptance commits.
  using Rows = std::vector<std::pair<std::int64_t, std::int64_t>>;

  explicit SpeculativeServer(const SpeculativeOptions& options);

  void prompt(std::int64_t id, std::int64_t slot, std::int64_t tokens);
  /// A new request with the first 8 tokens of another, whose prompt came last and whose pages it
  /// shares, and four more.
  void share(std::int64_t id, std::int64_t slot, std::int64_t from);
  /// Attention, MTP and draft acceptance; then caches are cut to what was kept.
  void step(const Rows& rows);
  /// Its pages are free.
  void release(std::int64_t id);
  /// Its pages are free, and its prompt is computed again.
  void preempt(std::int64_t id, std::int64_t tokens);

  Server states;
  std::map<std::int64_t, Live> live;
  std::vector<chain::Call> calls;
  /// Change a call that is about to be handed over; empty: nothing.
  std::function<void(call::Record&)> on_attention, on_acceptance;

 private:
  struct Fresh {
    std::int64_t id, queries, keys, offset;
  };
  call::Tensor draw(const std::string& name, call::Shape shape);
  void grow(Live& request, std::int64_t tokens);
  void write(const Live& request, std::int64_t t, const call::Record& record, std::int64_t row);
  void attend(const std::vector<Fresh>& rows, bool is_prompt, std::int64_t restored_from = -1);
  void add_table(const std::vector<Fresh>& rows, call::Record& record) const;
  void mtp(const Rows& rows, const std::vector<std::int64_t>& starts);
  void hand_over(call::Record record);

  SpeculativeOptions options_;
  call::Tensor keys_, values_;
  std::set<std::int64_t> free_;
  std::int64_t drawn_ = 0;
};

/// With 1 to 3 requests, of 10, 7 and 5 tokens, after a step that keeps 2, 3 and 1.
[[nodiscard]] SpeculativeServer begun(std::int64_t requests,
                                      const SpeculativeOptions& options = {});

/// The first of so many findings, which is about the continuity of a request; or the only one.
[[nodiscard]] chain::Finding first_of(const std::vector<chain::Call>& calls, std::size_t findings);
[[nodiscard]] chain::Finding only(const std::vector<chain::Call>& calls);

/// Gives the calls that are left the indices 0, 1, ..
void number(std::vector<chain::Call>& calls);

}  // namespace goldenrule::testing
