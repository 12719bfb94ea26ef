// SPDX-License-Identifier: Apache-2.0
//
// Trees of drafts (EAGLE): token t of a row continues the state of its parent p,
//
//   S_t = step_t(S_p),   o_t = S_t^T q^_t,   S_-1 = the start state,
//
// so the state of a token is the plain recurrence along its path from the root, and a row is the
// set of its paths from the root to each leaf. That is how it is computed: the unfolded call has
// one row of unequal length per path, all of which start from the state of the row, and no tree. A
// token on several paths is computed on each of them and taken from the first. Nothing here knows
// the mathematics; oracle, budget and emulation see a chain. What the rule does not compute (slots
// that nobody writes, padded rows, rows of no token) is what the call without its tree has there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// A tree may have this many times its tokens on all its paths together: every tree of up to 31
/// tokens does, and those of drafts by far. Memory follows from it.
inline constexpr std::int64_t kMostPathTokens = 16;

class Paths {
 public:
  /// `record` has parent_tokens. Throws Error as call::make_plan does, and Error(kValue) for more
  /// than kMostPathTokens.
  explicit Paths(const call::Record& record);

  /// The call whose rows are the paths. It leaves in the pool what the tree leaves there; its
  /// intermediate_states are one per token of a path.
  [[nodiscard]] const call::Record& unfolded() const { return unfolded_; }
  /// The call whose rows are chains.
  [[nodiscard]] const call::Record& without_tree() const { return chain_; }

  /// Takes what the rule computes of output `name` from the unfolded call.
  void fold(const verdict::Exact& from, const std::string& name, verdict::Exact& to) const;
  /// The same of what is granted; `exact` is that of the tree.
  void fold(const verdict::Grant& from, const std::string& name, const verdict::Exact& exact,
            verdict::Grant& to) const;
  /// The same of all outputs that both have.
  void fold(const call::TensorMap& from, call::TensorMap& to) const;

 private:
  using Integers = std::vector<std::int64_t>;

  // "Block `to` of the tree's tensor is block `from` of the unfolded one."
  struct Move {
    std::int64_t from, to;
  };

  [[nodiscard]] const std::vector<Move>& moves(const std::string& name) const;
  void add_row(const call::Sequence& row);
  void add_path(const call::Sequence& row, std::int64_t leaf, Integers& owner);
  void add_writes(const call::Sequence& row, const Integers& owner);
  void gather(const call::Record& record, const call::Dims& dims);

  call::Record unfolded_, chain_;
  std::size_t heads_ = 0;
  std::int64_t limit_ = 0;  // tokens on all paths
  std::vector<Move> o_, final_state_, kept_;
  Integers tokens_;                                  // of the unfolded call, as tokens of the tree
  Integers path_;                                    // of each token of the unfolded call
  Integers bounds_{0}, starts_;                      // of the paths
  std::vector<std::vector<call::Snapshot>> writes_;  // of each path into the pool
};

}  // namespace goldenrule::delta
