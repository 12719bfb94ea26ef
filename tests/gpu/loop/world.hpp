// SPDX-License-Identifier: Apache-2.0
//
// A server that drafts and accepts: requests with a state of the target's delta rule and two paged
// caches. A round is DFlash's: the drafter attends from a block to the context, the target runs the
// block, drafts are accepted, both caches are cropped, and the delta rule commits the accepted
// tokens:
//
//   draft    full attention: what its cache holds, then the rows of the tokens that the last round
//            committed, then the block, all of which it writes behind the cache
//   target   delta rule over the block, the pool left as it was; causal attention over the cache
//            with the keys of the block in it
//   accept   d_i is accepted while it is y_{i-1}; c = 1 + accepted, fewer behind a stop token
//   crop     the target's cache to start + c, the drafter's to start
//   commit   the delta rule once more, from the same states, with accepted_tokens = c
//
// Two worlds of the same requests run round by round, the leader by the reference, the follower by
// the kernels, each with its own caches, pages, pool and tokens. The only thing that the follower
// has of the leader are the draws (draws.hpp).
//
// The bounds between the two. Attention's inputs are equal bit for bit (model.hpp), so a kernel is
// within the contract's budget of the reference. The delta rule's are equal but for the state. Per
// column s of a state (one value, all keys) the rule is s <- (I - beta k^ k^') alpha s + .. with
// |k^| <= 1, 0 < beta < 1, 0 < alpha <= 1, which does not lengthen a difference, so with e the
// length of the difference of the columns before a commit,
//
//   e <- e + || budget + radius + half an ulp of the reference's own f32 ||,
//   |o - o_ref| <= |q^| e + budget + radius,   |q^| <= |scale| = 1.
//
// The budget is that of the reference's state and not of the kernel's; to first order they are the
// same, and in any case every element is compared with the bound.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/loop/draws.hpp"
#include "tests/gpu/loop/engine.hpp"
#include "tests/gpu/loop/paged_cache.hpp"

namespace goldenrule::test::loop {

inline constexpr std::int64_t kDrafts = 7, kBlock = kDrafts + 1;
inline constexpr std::int64_t kRequests = 4;
inline constexpr std::int64_t kRows = kRequests + 1;  ///< the last row is padding
inline constexpr std::int64_t kSlots = 7;

/// What a server does wrong with numbers that are right.
enum class Fault : std::uint8_t {
  kNone,
  kAcceptsOneMore,       ///< the first rejected draft is taken for accepted
  kDraftKeepsRejected,   ///< the drafter's cache is cropped one row too late
  kTargetKeepsRejected,  ///< the target's cache likewise
  kBonusNotCommitted,    ///< the token behind the accepted drafts is not appended
  kStaleDraftLength,     ///< draft attention has the length of the cache of the round before
  kCommitsOneLess,       ///< the delta rule commits the tokens before the last accepted one
};

/// What a round left that can be compared.
struct Turn {
  std::map<std::string, Output> outputs;  ///< of the calls, and "state": the whole pool
  std::vector<std::vector<std::int64_t>> emitted;
  std::vector<std::int64_t> accepted, lengths;
};

/// A request: its tokens so far, the first of which it came with.
using Tokens = std::vector<std::int64_t>;

class World {
 public:
  /// `leads`: answers questions, by the bounds of its engine.
  World(Engine engine, Draws& draws, bool leads, Fault fault = Fault::kNone);

  const Turn& round();
  [[nodiscard]] const std::map<std::int64_t, Tokens>& requests() const { return requests_; }
  [[nodiscard]] const PagedCache& draft_cache() const { return draft_cache_; }
  [[nodiscard]] const PagedCache& target_cache() const { return target_cache_; }
  /// Of a right server: the drafter's cache and the rows that it has not seen are the target's.
  [[nodiscard]] bool lengths_agree() const;

 private:
  struct Row {
    std::int64_t request = 0;
    std::int64_t draft_len = 0, target_len = 0, draft_len_before = 0;
    std::vector<Hidden> context = {};  ///< committed rows that the drafter has not seen
    std::vector<Hidden> block = {};    ///< of this round
  };
  Tokens& tokens(const Row& row) { return requests_.at(row.request); }
  /// The position of the anchor.
  std::int64_t start(const Row& row) { return std::ssize(tokens(row)) - 1; }
  void admit(std::size_t n);
  std::int64_t answer(const Question& question, const Output& output, std::int64_t first,
                      std::int64_t count);
  void draft();
  void run_delta();
  void run_attention();
  void settle();
  void keep(std::size_t n, std::int64_t accepted, const Tokens& emitted, std::int64_t draft_len);
  void commit(const std::vector<std::int64_t>& counts);
  [[nodiscard]] call::Record delta_call() const;

  Engine engine_;
  Draws& draws_;
  bool leads_;
  Fault fault_;
  std::map<std::int64_t, Tokens> requests_;
  std::vector<Row> rows_;
  PagedCache draft_cache_{kRows}, target_cache_{kRows};
  call::Tensor pool_;
  std::vector<double> drift_;   ///< e of each slot, head and value
  std::vector<Tokens> chosen_;  ///< y of each row
  Turn turn_;
};

}  // namespace goldenrule::test::loop
