// SPDX-License-Identifier: Apache-2.0
//
// Which mistake a wrong state is: it is compared with the states that the mistakes would give, of
// this request at other positions, of all other requests, of what the slot held. A candidate is
// taken where every element is within its budget and that budget is smaller than the state itself;
// without one there is no name.
#pragma once

#include <optional>
#include <string>

#include "reference/chain/finding.hpp"
#include "reference/chain/request.hpp"
#include "reference/chain/step.hpp"

namespace goldenrule::chain {

struct Suspect {
  const Block* x = nullptr;   ///< the wrong state
  std::int64_t request = -1;  ///< to whom it was given
  std::int64_t position = 0;  ///< that it should have
  bool fresh = false;         ///< the request is new
  bool restored = false;      ///< it was to start from an earlier state of `request`
  /// The state is what its call left, and which one; absent: what it started from.
  std::optional<std::int64_t> after = {};
  const call::Record* earlier = nullptr;  ///< after a call: the tokens of the call before it
  const Block* started = nullptr;         ///< after a call: what it had started from
  /// Before a call: its tokens and its row of them.
  const call::Record* tokens = nullptr;
  std::int64_t row = 0;
  const Block* slot_held = nullptr;  ///< before a call: the slot after the last call, if stored
  std::int64_t slot_owner = -1;      ///< who had it
};

struct Name {
  Mistake mistake = Mistake::kNone;
  std::string text;                       ///< "it is the state after 1 of the 3 tokens ..."
  std::optional<std::int64_t> rolled_to;  ///< after an MTP call: which of its states it is
};

[[nodiscard]] Name name_of(const verdict::Slice& slice, const Layout& layout,
                           const Requests& requests, const Suspect& suspect);

/// A row that starts from state `found` of its last MTP call, where `kept` is right; a count of
/// tokens that is taken for a place names `by_count`, which in a tree is another one.
inline constexpr std::int64_t kAtRest = -1;
struct Rolled {
  std::int64_t row = 0;       ///< of this call; kAtRest: its state lies in its slot
  std::int64_t last_row = 0;  ///< of the MTP call
  std::int64_t kept = 0, found = 0, by_count = 0;
};
/// One name for the requests that follow the same MTP call, those that are right included.
[[nodiscard]] Mistake name_of(const std::vector<Rolled>& rows,
                              const std::vector<std::int64_t>& counts, bool plain_decode);

}  // namespace goldenrule::chain
