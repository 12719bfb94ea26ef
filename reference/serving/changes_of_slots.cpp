// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of which state lies in the slot of a row.
#include "reference/serving/changes.hpp"

#include <utility>
#include <vector>

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

// The slots of rows that have requests go to other such rows of the decode: that of `from` rows on.
static bool move_slots(Step& step, std::size_t rows) {
  if (step.mode != Mode::kDecode) return false;
  std::vector<Row*> live;
  for (Row& row : step.rows) {
    if (row.request >= 0 && live.size() < rows) live.push_back(&row);
  }
  for (std::size_t i = 0; i + 1 < live.size(); ++i) {
    std::swap(live[i]->slot, live[i + 1]->slot);
    std::swap(live[i]->out, live[i + 1]->out);
  }
  return live.size() > 1;
}
bool slots_exchanged(Step& step, const Past&) { return move_slots(step, 2); }
bool slots_shifted(Step& step, const Past&) { return move_slots(step, step.rows.size()); }

// Whether the last call was a decode of the request as well, in the same slot.
static bool was_in_last_decode(const Row& row, const Past& past) {
  if (row.request < 0 || past.last.mode != Mode::kDecode) return false;
  const auto last = std::ranges::find(past.last.rows, row.request, &Row::request);
  return last != past.last.rows.end() && last->slot == row.slot && last->out == row.slot &&
         last->position + 1 == row.position;
}

bool slot_one_call_old(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [&](const Row& row) {
    if (!was_in_last_decode(row, past)) return false;
    step.moves.push_back(
        {.from = {Where::kFormer, -1, row.slot}, .to = {Where::kSlot, -1, row.slot}});
    return true;
  });
}

// Back by two tokens, to the state of one.
bool restored_one_off(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [&](Row& row) {
    const bool can = was_in_last_decode(row, past) && row.restored_from < 0 &&
                     row.position > request_of(past, row.request).prompt + 1;
    if (!can) return false;
    step.moves.push_back(
        {.from = {Where::kFormer, -1, row.slot}, .to = {Where::kSlot, -1, row.slot}});
    row.position -= 2;
    row.restored_from = row.request;
    return true;
  });
}

bool slot_noise(Step& step, const Past&) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [&](const Row& row) {
    if (row.request < 0) return false;
    step.moves.push_back({.from = {Where::kNoise, -1, 0}, .to = {Where::kSlot, -1, row.slot}});
    return true;
  });
}

static bool restore_instead(Step& step, Where from, Where instead) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, from, Where::kSlot)) return false;
    move.from = {instead, -1, 0};
    return true;
  });
}
bool resumed_as_zero(Step& step, const Past&) {
  return restore_instead(step, Where::kSwap, Where::kNothing);
}
bool snapshot_not_initialised(Step& step, const Past&) {
  return restore_instead(step, Where::kSnapshot, Where::kNoise);
}

// Of the call before: the first block of another row.
bool snapshot_of_other_row(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kCheckpoint, Where::kSnapshot)) return false;
    std::int64_t first = 0;
    for (const Row& row : past.prefill.rows) {
      const bool other = row.request != move.to.request && !row.checkpoints.empty();
      if (other) {
        move.from.index = first;
        return true;
      }
      first += std::ssize(row.checkpoints);
    }
    return false;
  });
}

bool padding_names_slot_zero(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode || !past.owner.contains(0)) return false;
  const bool used =
      std::ranges::any_of(step.rows, [](const Row& row) { return row.slot == 0 || row.out == 0; });
  const bool live = std::ranges::any_of(past.scheduler->requests(), [](const Request& request) {
    return request.position > 0 && !request.slots.empty() &&
           request.slots[static_cast<std::size_t>(request.column - 1)] == 0;
  });
  const auto padding = std::ranges::find(step.rows, -1, &Row::request);
  if (used || !live || padding == step.rows.end()) return false;
  padding->slot = padding->out = 0;
  return true;
}

// What goes on from a prefix of another request goes on in its slot.
bool fork_in_one_slot(Step& step, const Past& past) {
  return any_changed(step.rows, [&](Row& row) {
    if (row.restored_from < 0 || row.restored_from == row.request || !row.columns.empty()) {
      return false;
    }
    const Request& parent = request_of(past, row.restored_from);
    if (parent.slots.empty() || parent.position == 0) return false;
    const std::int64_t slot = parent.slots[static_cast<std::size_t>(parent.column - 1)];
    const bool used = std::ranges::any_of(
        step.rows, [&](const Row& other) { return other.slot == slot || other.out == slot; });
    if (used) return false;
    step.moves.push_back({.from = {Where::kSlot, -1, row.slot}, .to = {Where::kSlot, -1, slot}});
    row.slot = row.out = slot;
    return true;
  });
}

// One token behind the state that it is given.
static bool skip_token(Row& row) {
  if (row.restored_from < 0 || row.count < 2) return false;
  ++row.position;
  --row.count;
  --row.accepted;
  for (std::int64_t& after : row.checkpoints) --after;
  std::erase(row.checkpoints, 0);
  return true;
}

bool restored_between(Step& step, const Past&) {
  return step.mode == Mode::kPrefill && any_changed(step.rows, skip_token);
}

bool missing_tokens_decay(Step& step, const Past&) {
  if (step.mode != Mode::kPrefill) return false;
  return any_changed(step.rows, [&](Row& row) {
    if (!skip_token(row)) return false;
    const Place slot{Where::kSlot, -1, row.slot};
    step.moves.push_back({.from = slot,
                          .to = slot,
                          .replay = Stretch{row.request, row.position - 1, 1},
                          .decay_only = true});
    return true;
  });
}

}  // namespace goldenrule::serving
