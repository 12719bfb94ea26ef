// SPDX-License-Identifier: Apache-2.0
//
// Where the ledger of a row stands when its call begins.
#include <algorithm>
#include <cmath>
#include <string>

#include "reference/chain/trail.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {

void CallWalk::report_open(const RowWalk& row, const Request& request) {
  const std::string call = "call " + std::to_string(request.call);
  report(Check::kInput, row,
         request.parents.empty()
             ? "nothing says how many tokens of " + call +
                   " were kept: expected accepted_counts, accepted_tokens or positions"
             : "nothing says which token of the tree (parent_tokens) of " + call +
                   " goes on: expected accepted_last")
      .verdict = verdict::Verdict::kError;
}

void close_count(const verdict::Slice& slice, const Layout& layout, std::int64_t kept,
                 Request& request) {
  request.kept = kept;
  if (kept == 0) {
    request.now = request.before;
  } else if (request.before && request.tokens != nullptr) {
    const Step step(slice, *request.contract, layout, one_row(*request.tokens, request.row),
                    {&request.before, 1});
    request.now = step.after(0, kept);
  }
}

// After an MTP call whose counts nobody said: the position of this call says how many tokens were
// kept, in a tree only where it was none. False where nothing says it.
bool CallWalk::settle(RowWalk& row, Request& request) {
  if (request.kept) return true;
  const std::int64_t kept = row.id.position.value_or(request.base) - request.base;
  const bool anew = row.id.position == 0;  // whatever was kept
  if (!row.id.position || (!request.parents.empty() && kept != 0 && !anew)) {
    report_open(row, request);
    request.now.reset();
    request.kept = 0;
    return false;
  }
  if (kept < 0 || kept > request.given) return true;  // said by enter_again
  close_count(slice_, layout_, kept, request);
  return true;
}

void CallWalk::enter_again(RowWalk& row, Request& request) {
  const bool known = settle(row, request);
  row.position = row.id.position.value_or(request.position());
  if (!known) return;
  if (request.kept && row.position == request.position()) {
    row.ledger = request.now;
    if (const Stored* left = request.left_behind()) row.expected = *left;
    return;
  }
  if (row.position == 0) {  // preempted: it starts anew
    ++memory_.summary.restarts;
    row.fresh = true;
    row.ledger = layout_.zero();
    return;
  }
  const std::string seen = request.kept ? std::to_string(request.position())
                                        : std::to_string(request.base) + " to " +
                                              std::to_string(request.base + request.given);
  Finding& finding =
      report(Check::kInput, row,
             "the request is at position " + seen + " after call " + std::to_string(request.call) +
                 ", and this call says " + std::to_string(row.position));
  finding.verdict = verdict::Verdict::kError;
  // Where no call is missing, the server has counted otherwise than it said, or tokens that it gave
  // to none.
  const bool whole = !memory_.gap || *memory_.gap <= request.call;
  const std::int64_t after = row.position - request.base;
  if (whole && request.mtp && request.kept && request.parents.empty() && after >= 0 &&
      after <= request.given) {
    finding.mistake = Mistake::kCountsContradicted;
  } else if (whole &&
             row.position > (request.kept ? request.position() : request.base + request.given)) {
    finding.mistake = Mistake::kTokensMissing;
  }
  // A state that is what the last call left is the request's, whatever the position says.
  const Stored* left = request.left_behind();
  if (row.start && left != nullptr && row.start->values == left->values) {
    row.ledger = request.now;
    row.expected = *left;
    return;
  }
  row.taken = true;
}

// Bit for bit a state that a call of the request has stored at that position.
bool CallWalk::take_stored(const Request& source, RowWalk& row) const {
  if (!row.start || (row.expected && continues(*row.expected, *row.start))) return false;
  const std::pair here{row.position, digest_of(row.start->values)};
  const bool finite =
      std::ranges::all_of(row.start->values, [](double x) { return std::isfinite(x); });
  if (!finite || std::ranges::find(source.been, here) == source.been.end()) return false;
  row.expected = *row.start;
  row.ledger = layout_.exact(row.start->values);
  return true;
}

// The state that a request had at the position of the row, where it is remembered or can be
// computed from its tokens.
bool CallWalk::take_state_of(std::int64_t id, RowWalk& row) {
  const auto found = memory_.requests.find(id);
  if (found == memory_.requests.end()) return false;
  Request& source = found->second;
  const auto anchor = source.anchors.find(row.position);
  if (anchor != source.anchors.end()) {
    row.ledger = anchor->second.ledger;
    row.expected = anchor->second.stored;
  } else if (source.kept && source.position() == row.position) {
    row.ledger = source.now;
    if (const Stored* left = source.left_behind()) row.expected = *left;
  }
  if (take_stored(source, row)) return true;
  if (!row.ledger) {
    row.ledger = ledger_at(slice_, layout_, memory_.requests, id, row.position, call_.index);
    if (!row.ledger) return false;
    source.anchors.insert_or_assign(row.position, Anchor{row.ledger, std::nullopt});
    memory_.anchors.emplace_back(id, row.position);
  }
  take_former(id, row);
  return true;
}

// A request that began again has been at this position before: where the start is not what its
// present life says, and is what a former one does, it is that one's. Where no start is stored and
// they differ, nobody knows which it is.
void CallWalk::take_former(std::int64_t id, RowWalk& row) const {
  if (row.start && row.expected && continues(*row.expected, *row.start)) return;
  const std::vector<Known> ledgers =
      former_ledgers_at(slice_, layout_, memory_.requests, id, row.position, call_.index);
  if (ledgers.empty()) return;
  if (!row.start) {
    row.taken = true;
    row.ledger.reset();
    row.expected.reset();
    return;
  }
  const auto fits = [&](const Known& ledger) {
    return judged(row.start->values, allowed_now(layout_, contract_, *ledger)).fit.passes();
  };
  if (!row.expected && fits(row.ledger)) return;
  const auto former = std::ranges::find_if(ledgers, fits);
  if (former == ledgers.end()) return;
  row.ledger = *former;
  row.expected.reset();
}

// How far a request of the dump has come before this call; absent: the dump does not know it.
std::optional<std::int64_t> CallWalk::reached(std::int64_t id) const {
  const auto found = memory_.reached.find(id);
  if (found == memory_.reached.end() || found->second < 0) return std::nullopt;
  return found->second;
}

// A start is somebody's end.
void CallWalk::restore_from_dump(RowWalk& row) {
  const std::int64_t id = *row.id.restored_from;
  const std::optional<std::int64_t> known = reached(id);
  std::optional<std::int64_t> last = known;
  const auto beside =
      std::ranges::find(rows_, id, [](const RowWalk& other) { return other.id.request; });
  if (!last && id != row.id.request && beside != rows_.end()) last = beside->id.position;
  if (last && row.position > *last) {
    Finding& finding =
        report(Check::kInput, row,
               "restored_from: expected a position of request " + std::to_string(id) +
                   ", which has come to " + std::to_string(*last) + ", actual " +
                   std::to_string(row.position));
    finding.verdict = verdict::Verdict::kError;
    if (!memory_.gap) finding.mistake = Mistake::kTokensMissing;
    row.taken = true;
    return;
  }
  if (take_state_of(id, row)) return;
  // What is restored are tokens that both have in common: at a position where the request itself
  // has been, its own ledger says what the state must be, wherever the copy comes from.
  if (take_state_of(row.id.request, row)) {
    row.expected.reset();
    return;
  }
  if (!known) return;
  row.taken = true;
  report(Check::kInput, row,
         "the state of request " + std::to_string(id) + " at position " +
             std::to_string(row.position) +
             " is stored by no call, and the tokens that make it are not in the dump or were given "
             "up for memory: nothing says whether the start is right")
      .verdict = verdict::Verdict::kMistrusted;
}

void CallWalk::restore(RowWalk& row) {
  if (!row.id.position) {
    report(Check::kInput, row,
           "restored_from " + std::to_string(*row.id.restored_from) +
               ": expected positions, which say what of it is restored")
        .verdict = verdict::Verdict::kError;
    row.taken = true;
    return;
  }
  row.position = *row.id.position;
  if (row.position == 0) {
    if (reached(row.id.request)) ++memory_.summary.restarts;
    row.fresh = true;
    row.ledger = layout_.zero();
    return;
  }
  const auto source = memory_.requests.find(*row.id.restored_from);
  if (source != memory_.requests.end() && source->second.is_open_tree() &&
      row.position > source->second.base) {
    report_open(row, source->second);
    row.taken = true;
    return;
  }
  restore_from_dump(row);
}

// A request that nobody knows and of which nothing says where it stands, on what another left in
// its slot: it may be a stale slot, or the same conversation under a new id.
void CallWalk::suspect_takeover(RowWalk& row) {
  const auto writer = memory_.writers.find(row.slot);
  if (!row.start || writer == memory_.writers.end() || is_zero(row.start->values)) return;
  const auto other = memory_.requests.find(writer->second.owner);
  if (other == memory_.requests.end() || other->first == row.id.request) return;
  const Stored* left = other->second.left_behind();
  if (left == nullptr || !continues(*left, *row.start)) return;
  if (row.id.position == other->second.position()) {
    row.ledger = other->second.now;
    row.expected = *left;
    return;
  }
  report(Check::kInput, row,
         "a request that is new to the chain starts from what request " +
             std::to_string(other->first) + " left at position " +
             std::to_string(other->second.position()) +
             ": a stale slot, unless it goes on from there; expected " +
             (row.id.position ? "that position" : "positions") + " or restored_from")
      .verdict = verdict::Verdict::kMistrusted;
}

void CallWalk::enter(RowWalk& row) {
  if (memory_.reached.try_emplace(row.id.request, -1).second) ++memory_.summary.requests;
  const auto found = memory_.requests.find(row.id.request);
  if (row.id.restored_from) {
    restore(row);
  } else if (found != memory_.requests.end()) {
    enter_again(row, found->second);
  } else {
    const call::Tensor* flags = record_.find_input("has_initial_state");
    const bool flagged = flags != nullptr && (*flags)[row.row] == 0.0;
    const bool zero = row.start && is_zero(row.start->values);
    row.position = row.id.position.value_or(0);
    row.fresh = row.id.position ? row.position == 0 : flagged || zero;
    if (row.fresh) {
      row.ledger = layout_.zero();
    } else {
      suspect_takeover(row);
    }
  }
  if (row.ledger || !row.start) return;
  ++memory_.summary.taken;
  const bool finite =
      std::ranges::all_of(row.start->values, [](double x) { return std::isfinite(x); });
  if (finite) row.ledger = layout_.exact(row.start->values);
  row.expected.reset();
  row.taken = true;
}

}  // namespace goldenrule::chain
