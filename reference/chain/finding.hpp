// SPDX-License-Identifier: Apache-2.0
//
// What the judge of chains says: where a request leaves its own trajectory, and what was done to
// its state there. A finding has the coordinates of a server (call, request, slot) beside those of
// the call (row), the check that it comes from, and where the state is another one that the chain
// knows, the name of the mistake.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fixtures/call/convention.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::chain {

enum class Check : std::uint8_t {
  kInput,       ///< the chain contradicts itself, or does not say what is needed
  kCall,        ///< the verdict on the call alone
  kContinuity,  ///< a request starts from what its last call left, bit for bit: state, cache, count
  kLedger,      ///< a stored state is the rule applied to the request's own tokens
  kFrame,       ///< a slot that the call does not name keeps its bits
  kFreshness,   ///< a new request starts from zero
  kParameters,  ///< all calls are of one layer: its rule, A_log and dt_bias
  kRange,       ///< what is stored is finite
  kOutputs,     ///< o of a call without states is what its requests' own states make of it
};

/// What was done to a state, each found by comparing it with the state that the mistake gives.
enum class Mistake : std::uint8_t {
  kNone,            ///< no candidate within its budget
  kStaleSlot,       ///< a new request starts from what its slot held
  kWrongColumn,     ///< after an MTP call: row 0 of it, whatever was accepted
  kOtherRowsCount,  ///< after an MTP call: the state after the accepted count of another row
  kWrongRollback,   ///< after an MTP call: the state after another number of tokens, or of another
                    ///< token of the tree
  kOffBoundary,     ///< the state of the same request at another position
  kReplayedTwice,   ///< the tokens of a call are applied twice
  kNotWritten,      ///< the state from before the call, or zero
  kOtherRequest,    ///< the state of another request
  kNarrowed,        ///< the right state, rounded once more than its pool rounds
  kHeadsMoved,      ///< value heads of the right state, in another order
  kCopiedInPart,    ///< the right state at first, then what the slot held
  kOverwritten,     ///< the slot was written by a call that does not own it
  kParametersNarrowed,  ///< a parameter of the layer, rounded in some calls
  kOverflowed,          ///< a right result beyond the range of the type in which it is stored
  kOtherKeys,           ///< the tokens of the call with the keys of the call before
  kTokensMissing,       ///< positions that no call has the tokens of
  kTokenByCount,        ///< after an MTP call of a tree: the state of token count - 1
  kRuleChanged,         ///< a call has another rule than one before it
  kCountsContradicted,  ///< after an MTP call: the position is that of another accepted count
  kAxesExchanged,       ///< the right state with its axes of keys and values exchanged
  kScaled,              ///< the right state, multiplied by one number
  kDecayedAgain,        ///< the right state, decayed by tokens that write nothing
  kOtherPage,           ///< of a cache: a row of another request
  kOtherPosition,       ///< of a cache: a row of the same request at another position
  kRowNotWritten,       ///< of a cache: what its place held before
  kRejectedRow,         ///< of a cache: a row of a draft that was rejected
  kWrongLength,         ///< the cache of a request has more tokens than it kept, or fewer
  kWrongStart,          ///< a draft acceptance begins at another token than its request
  kNotCommitted,        ///< a draft acceptance commits another number of tokens than the server
};

}  // namespace goldenrule::chain

namespace goldenrule::call {

template <>
struct EnumNames<chain::Check> {
  static constexpr std::string_view kWhat = "check";
  static constexpr std::array<std::string_view, 9> kNames{"input",      "call",  "continuity",
                                                          "ledger",     "frame", "freshness",
                                                          "parameters", "range", "outputs"};
};
template <>
struct EnumNames<chain::Mistake> {
  static constexpr std::string_view kWhat = "chain mistake";
  static constexpr std::array<std::string_view, 30> kNames{"none",
                                                           "stale_slot",
                                                           "wrong_column",
                                                           "counts_of_another_row",
                                                           "rollback_by_wrong_number",
                                                           "snapshot_off_boundary",
                                                           "tokens_applied_twice",
                                                           "state_not_written",
                                                           "state_of_another_request",
                                                           "state_narrowed",
                                                           "heads_moved",
                                                           "state_copied_in_part",
                                                           "slot_overwritten",
                                                           "parameters_narrowed",
                                                           "output_overflowed",
                                                           "keys_of_another_call",
                                                           "tokens_missing",
                                                           "token_by_count",
                                                           "rule_changed",
                                                           "counts_contradicted",
                                                           "axes_exchanged",
                                                           "state_scaled",
                                                           "state_decayed_again",
                                                           "page_of_another_request",
                                                           "row_at_another_position",
                                                           "row_not_written",
                                                           "rejected_row_kept",
                                                           "wrong_length",
                                                           "wrong_start",
                                                           "count_not_committed"};
};

}  // namespace goldenrule::call

namespace goldenrule::chain {

struct Finding {
  Check check = Check::kInput;
  verdict::Verdict verdict = verdict::Verdict::kOutOfBudget;  ///< kError: cannot be judged
  Mistake mistake = Mistake::kNone;
  std::int64_t call = 0;      ///< index of the call
  std::int64_t request = -1;  ///< -1: none
  std::int64_t slot = -1;     ///< of the pool, or of `page`; -1: none
  std::int64_t page = -1;     ///< of a cache; -1: none
  std::int64_t row = -1;      ///< of the call; -1: none
  std::int64_t position = 0;  ///< tokens of the request before the call; of a row, where it is
  std::string text;           ///< one sentence, with expected and actual
};

}  // namespace goldenrule::chain
