// SPDX-License-Identifier: Apache-2.0
//
// Where the ledger of a row stands when its call begins.
#include <algorithm>
#include <cmath>
#include <string>

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

// After a verify whose counts nobody said: the position of this call says how many tokens were
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
  request.kept = kept;
  if (kept == 0) {
    request.now = request.before;
  } else if (request.before && request.tokens != nullptr) {
    const Step step(slice_, *request.contract, layout_, one_row(*request.tokens, request.row),
                    {&request.before, 1});
    request.now = step.after(0, kept);
  }
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
  // Where no call is missing, the server has counted tokens that it gave to none.
  const bool whole = !memory_.gap || *memory_.gap <= request.call;
  if (whole && row.position > (request.kept ? request.position() : request.base + request.given)) {
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

// The state that a request had at the position of the row, where it is remembered or can be
// computed from its last tokens.
bool CallWalk::take_state_of(std::int64_t id, RowWalk& row) {
  const auto found = memory_.requests.find(id);
  if (found == memory_.requests.end()) return false;
  const Request& source = found->second;
  const auto anchor = source.anchors.find(row.position);
  if (anchor != source.anchors.end()) {
    row.ledger = anchor->second.ledger;
    row.expected = anchor->second.stored;
  } else if (source.kept && source.position() == row.position) {
    row.ledger = source.now;
    if (const Stored* left = source.left_behind()) row.expected = *left;
  } else {
    const std::optional<Way> way = source.verify ? source.way() : source.planes;
    if (!way || row.position <= way->base || row.position > way->position(way->kept)) return false;
    const std::vector<std::int64_t> path = call::path_to(way->parents, way->kept);
    const std::int64_t after = path[static_cast<std::size_t>(row.position - way->base - 1)] + 1;
    const call::Record tokens = one_row(*way->tokens, way->row);
    const Step step(slice_, *way->contract, layout_, tokens, {&way->before, 1});
    row.ledger = step.after(0, after);
  }
  return row.ledger != nullptr;
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
  if (take_state_of(*row.id.restored_from, row)) return;
  // What is restored are tokens that both have in common: at a position where the request itself
  // has been, its own ledger says what the state must be, wherever the copy comes from.
  if (take_state_of(row.id.request, row)) row.expected.reset();
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
  if (memory_.seen.insert(row.id.request).second) ++memory_.summary.requests;
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
