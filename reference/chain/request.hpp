// SPDX-License-Identifier: Apache-2.0
//
// What the judge remembers of a request between its calls.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fixtures/call/token_tree.hpp"
#include "reference/chain/ledger.hpp"

namespace goldenrule::chain {

/// A state as a call stored it.
struct Stored {
  Block values;
  call::DType dtype = call::DType::kF32;
};

/// A state that a request had on the way.
struct Anchor {
  Known ledger;
  std::optional<Stored> stored;
};

/// From where and through which tokens a call has taken a request: its state after any of them can
/// be computed again.
struct Way {
  Known before;
  std::int64_t base = 0, row = 0, kept = 0;
  std::shared_ptr<const call::Record> tokens;
  const contract::Contract* contract = nullptr;
  std::vector<std::int64_t> parents = {};

  /// Of the request after state `after` of the call (token_tree.hpp).
  [[nodiscard]] std::int64_t position(std::int64_t after) const {
    return base + call::depth_of(parents, after);
  }
};

/// One call on the way of a request. Its ledger is kept where it does not begin with what the leg
/// before it left.
struct Leg {
  Way way;
  std::int64_t call = 0;
  bool anew = false;
};
/// Whose state a request took over, at which position and in which call.
struct Origin {
  std::int64_t request = -1, position = 0, call = 0;
};

inline constexpr std::size_t kBeen = 4096;
/// Of its bits, by the steps of fnv1a for eight bytes at once. The low bits of a double are 0 where
/// it came from a narrow type, and a product moves no bit downwards: a shift does.
[[nodiscard]] inline std::uint64_t digest_of(std::span<const double> block) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const double x : block) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(x)) * 0x100000001b3U;
    hash ^= hash >> 32U;
  }
  return hash;
}

struct Request {
  std::int64_t call = 0, row = 0, slot = -1;  ///< where it was last
  std::int64_t base = 0;                      ///< its position before that call
  std::int64_t given = 0;                     ///< tokens of that call
  std::vector<std::int64_t> parents;          ///< of these tokens; empty: they are no tree
  /// The state of that call that goes on, named as in Snapshot::after: after so many tokens of it,
  /// or in a tree of token kept - 1. Absent: the next position says, in a tree nobody.
  std::optional<std::int64_t> kept;
  bool mtp = false;  ///< that call was an MTP call
  Known before, now;
  std::shared_ptr<const call::Record> tokens;    ///< of that call
  const contract::Contract* contract = nullptr;  ///< of that call
  /// Its accepted counts, row by row; -1: not known, or a row of padding.
  std::shared_ptr<const std::vector<std::int64_t>> counts;
  std::map<std::int64_t, Stored> left;     ///< what that call stored, named as `kept`
  std::map<std::int64_t, Anchor> anchors;  ///< by position
  std::optional<Way> planes;               ///< of its last MTP call before that call
  std::deque<Leg> trail;         ///< its calls before that one, as far as they are remembered
  std::optional<Origin> origin;  ///< absent: it never took over the state of another
  bool anew = false;             ///< that call does not begin with what the one before it left
  bool corrected = false;        ///< `now` is what is stored, and not what its tokens make
  /// Digests of states that its calls have stored, by position: the last kBeen of them.
  std::deque<std::pair<std::int64_t, std::uint64_t>> been;
  std::uint64_t bytes = 0;  ///< that it holds, as Memory counts them
  bool overflowed = false;  ///< it was said that its o left its type
  bool strayed = false;     ///< it was said that its o is wrong, and no state was stored since

  /// That of its last call.
  [[nodiscard]] std::optional<Way> way() const {
    if (!before || !kept || tokens == nullptr) return std::nullopt;
    return Way{before, base, row, *kept, tokens, contract, parents};
  }

  /// The state of its last call that it has not gone beyond, named as `kept`: where nobody has said
  /// which goes on, all tokens may have been kept, and of a tree none is known to be.
  [[nodiscard]] std::int64_t furthest() const { return kept.value_or(parents.empty() ? given : 0); }
  /// How many tokens of its last call have come to it.
  [[nodiscard]] std::int64_t depth() const { return call::depth_of(parents, kept.value_or(0)); }
  [[nodiscard]] std::int64_t position() const { return base + depth(); }
  /// Whether nobody has said which token of its last call goes on, and no position can.
  [[nodiscard]] bool is_open_tree() const { return !kept && !parents.empty(); }
  /// Whether a state of its last call is one that the request has had.
  [[nodiscard]] bool has_been(std::int64_t after) const {
    return kept && call::leads_to(parents, after, *kept);
  }
  [[nodiscard]] const Stored* left_behind() const {
    const auto found = kept ? left.find(*kept) : left.end();
    return found == left.end() ? nullptr : &found->second;
  }
};

using Requests = std::map<std::int64_t, Request>;

}  // namespace goldenrule::chain
