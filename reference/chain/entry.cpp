// SPDX-License-Identifier: Apache-2.0
//
// Where the ledger of a row stands when its call begins.
#include <algorithm>
#include <cmath>
#include <string>

#include "reference/chain/walk.hpp"

namespace goldenrule::chain {

// After a verify whose counts nobody said: the position of this call says how many tokens were
// kept.
void CallWalk::settle(RowWalk& row, Request& request) {
  if (request.kept) return;
  if (!row.id.position) {
    report(Check::kInput, row,
           "nothing says how many tokens of call " + std::to_string(request.call) +
               " were kept: expected accepted_counts, accepted_tokens or positions")
        .verdict = verdict::Verdict::kError;
    request.now.reset();
    request.kept = 0;
    return;
  }
  const std::int64_t kept = *row.id.position - request.base;
  if (kept < 0 || kept > request.given) return;  // said by enter_again
  request.kept = kept;
  if (kept == 0) {
    request.now = request.before;
  } else if (request.before && request.tokens != nullptr) {
    const Step step(slice_, *request.contract, layout_, one_row(*request.tokens, request.row),
                    {&request.before, 1});
    request.now = step.after(0, kept);
  }
}

void CallWalk::enter_again(RowWalk& row, Request& request) {
  settle(row, request);
  row.position = row.id.position.value_or(request.position());
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
  report(Check::kInput, row,
         "the request is at position " + seen + " after call " + std::to_string(request.call) +
             ", and this call says " + std::to_string(row.position))
      .verdict = verdict::Verdict::kError;
  // A state that is what the last call left is the request's, whatever the position says.
  const Stored* left = request.left_behind();
  if (row.start && left != nullptr && row.start->values == left->values) {
    row.ledger = request.now;
    row.expected = *left;
    return;
  }
  row.taken = true;
}

void CallWalk::restore(RowWalk& row) {
  row.position = row.id.position.value_or(0);
  if (row.position == 0) {
    row.fresh = true;
    row.ledger = layout_.zero();
    return;
  }
  const auto source = memory_.requests.find(*row.id.restored_from);
  if (source == memory_.requests.end()) return;
  const auto anchor = source->second.anchors.find(row.position);
  if (anchor != source->second.anchors.end()) {
    row.ledger = anchor->second.ledger;
    row.expected = anchor->second.stored;
  } else if (source->second.kept && source->second.position() == row.position) {
    row.ledger = source->second.now;
    if (const Stored* left = source->second.left_behind()) row.expected = *left;
  } else {
    const Request& request = source->second;
    const std::optional<Way> way = request.verify ? request.way() : request.planes;
    const std::int64_t after = way ? row.position - way->base : 0;
    if (after < 1 || after > way->kept) return;
    const call::Record tokens = one_row(*way->tokens, way->row);
    const Step step(slice_, *way->contract, layout_, tokens, {&way->before, 1});
    row.ledger = step.after(0, after);
  }
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
    const bool zero =
        row.start && std::ranges::all_of(row.start->values, [](double x) { return x == 0.0; });
    row.position = row.id.position.value_or(0);
    row.fresh = row.id.position ? row.position == 0 : flagged || zero;
    if (row.fresh) row.ledger = layout_.zero();
  }
  if (row.ledger || !row.start) return;
  // Its first stored state is taken for right.
  if (found == memory_.requests.end() && !row.id.restored_from) ++memory_.summary.began_before;
  const bool finite =
      std::ranges::all_of(row.start->values, [](double x) { return std::isfinite(x); });
  if (finite) row.ledger = layout_.exact(row.start->values);
  row.expected.reset();
  row.taken = true;
}

}  // namespace goldenrule::chain
