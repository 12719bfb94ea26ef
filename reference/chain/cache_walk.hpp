// SPDX-License-Identifier: Apache-2.0
//
// One call of attention, walked through: the rows of its cache (cache_walk.cpp), how long the cache
// of each request is (cache_lengths.cpp), and what stands where another row was to be
// (cache_names.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/chain/caches.hpp"

namespace goldenrule::chain {

/// A row that is not what the request has shown.
struct WrongRow {
  std::int64_t t = 0, place = 0;
  CacheRow expected;
  std::uint64_t digest = 0;
};

/// What stands in its place.
struct RowName {
  Mistake mistake = Mistake::kNone;
  std::string words;
};

/// One request of the call.
struct CacheRequest {
  call::ChainRow id;
  std::int64_t row = 0;
  std::int64_t base = 0;                                        ///< length before the call
  std::int64_t given = 0;                                       ///< tokens of the call
  std::int64_t cached = 0;                                      ///< kv_lens
  std::int64_t queries = 0, valid = 0;                          ///< of the call
  std::int64_t first = 0, last = 0;                             ///< positions that its queries see
  std::vector<std::pair<std::int64_t, CacheRow>> stands = {};   ///< position, row in the cache
  std::vector<std::pair<std::int64_t, CacheRow>> brought = {};  ///< the same, of k and v
  std::vector<WrongRow> wrong = {};
  bool taken = false;
  bool miscounted = false;  ///< its length is wrong: what the next one is to be nobody knows

  /// Whether the request begins, maybe anew.
  [[nodiscard]] bool begins() const { return id.position.value_or(base) == 0; }
};

class CacheWalk {
 public:
  CacheWalk(Caches& caches, const Call& call, const call::Record& record,
            std::vector<Finding>& findings);
  void run();

 private:
  // cache_walk.cpp
  void read_rows();
  void read_request(const attention::Request& plan, CacheRequest& request) const;
  void digest_pool();
  [[nodiscard]] CacheRow fresh_row(std::int64_t row) const;
  void enter(CacheRequest& request);
  void restore(const CacheRequest& request, Cache& cache) const;
  void compare(CacheRequest& request);
  void leave(CacheRequest& request);
  void hold();
  Finding& report(const CacheRequest& request, Mistake mistake, std::string text);
  // cache_lengths.cpp
  void find_role();
  void check_lengths();
  void check_length(CacheRequest& request, std::vector<Followed>& followed);
  [[nodiscard]] std::vector<std::int64_t> lengths(const CacheRequest& request, const Cache& cache,
                                                  const Acceptance* said) const;
  void report_length(CacheRequest& request, std::int64_t expected, const Acceptance* said);
  // cache_names.cpp
  void report_rows();
  [[nodiscard]] RowName name_of(const CacheRequest& request, const WrongRow& wrong) const;
  [[nodiscard]] RowName of_others(const CacheRequest& request, const WrongRow& wrong,
                                  bool own_place) const;
  [[nodiscard]] RowName of_itself(const CacheRequest& request, const WrongRow& wrong) const;
  [[nodiscard]] bool was_there(const WrongRow& wrong) const;
  [[nodiscard]] bool is_own_page(const CacheRequest& request, const WrongRow& wrong) const;

  Caches& caches_;
  Memory& memory_;
  const Call& call_;
  std::int32_t index_;
  const call::Record& record_;
  std::vector<Finding>& findings_;
  attention::Plan plan_;
  bool in_cache_;
  std::vector<std::uint64_t> pool_;  ///< digests by place
  std::uint64_t zero_ = 0;           ///< digest of a row of zeros
  std::vector<CacheRequest> requests_;
};

}  // namespace goldenrule::chain
