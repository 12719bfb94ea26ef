// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that were reported in public, but for those of MTP calls and of numbers.
#include "reference/serving/changes.hpp"

#include <set>

#include "fixtures/call/dtype.hpp"

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

bool column_zero(Step& step, const Past&) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [](Row& row) {
    if (row.column < 2) return false;
    row.slot = row.columns.front();
    return true;
  });
}

// The counts stay where the rows were before one of them left.
bool counts_of_other_row(Step& step, const Past& past) {
  if (!step.compacted) return false;
  const std::int64_t T = past.scenario->T;
  if (past.scenario->mtp == cases::MtpForm::kScatter) {
    if (step.mode != Mode::kMtp) return false;
    const std::vector<Row> meant = step.rows;
    const auto live = static_cast<std::size_t>(
        std::ranges::count_if(meant, [](const Row& row) { return row.request >= 0; }));
    bool changed = false;
    for (std::size_t b = 0; b < live; ++b) {  // padding stands behind them
      Row& row = step.rows[b];
      const std::int64_t other = meant[(b + 1) % live].column;
      if (other == row.column) continue;
      row.column = other;
      row.slot = row.columns[static_cast<std::size_t>(other - 1)];
      changed = true;
    }
    return changed;
  }
  std::vector<Move*> commits;
  for (Move& move : step.moves) {
    if (is_copy(move, Where::kIntermediate, Where::kSlot)) commits.push_back(&move);
  }
  std::vector<std::int64_t> counts;
  counts.reserve(commits.size());
  for (const Move* move : commits) counts.push_back(move->from.index % T);
  bool changed = false;
  for (std::size_t i = 0; i < commits.size(); ++i) {
    const std::int64_t other = counts[(i + 1) % counts.size()];
    changed = changed || other != counts[i];
    commits[i]->from.index += other - counts[i];
  }
  return changed;
}

bool boundary_copy_backwards(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kSlot, Where::kSnapshot)) return false;
    const std::int64_t before = move.to.index - past.scenario->block;
    if (!request_of(past, move.to.request).snapshots.contains(before)) return false;
    const Place slot = move.from;
    move.from = {Where::kSnapshot, move.to.request, before};
    move.to = slot;
    return true;
  });
}

bool snapshot_off_boundary(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kCheckpoint, Where::kSnapshot)) return false;
    const auto row = std::ranges::find(past.prefill.rows, move.to.request, &Row::request);
    if (row == past.prefill.rows.end() || row->position + row->count == move.to.index) return false;
    move.from = {Where::kSlot, -1, row->out};
    return true;
  });
}

bool snapshot_not_written(Step& step, const Past&) {
  return std::erase_if(step.moves,
                       [](const Move& move) { return move.to.where == Where::kSnapshot; }) > 0;
}

// Packed for every block, looked up as if for every second one.
bool snapshot_grid_doubled(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kCheckpoint, Where::kSnapshot)) return false;
    std::int64_t first = 0;
    for (const Row& row : past.prefill.rows) {
      if (row.request == move.to.request) break;
      first += std::ssize(row.checkpoints);
    }
    const std::int64_t n = move.from.index - first;
    move.from.index = first + n / 2;
    return n > 0;
  });
}

static bool kept_in_bf16(Step& step, const Past& past, Where where) {
  if (past.scenario->state == call::DType::kBF16) return false;
  return any_changed(step.moves, [&](Move& move) {
    if (move.to.where != where) return false;
    move.through = call::DType::kBF16;
    return true;
  });
}
bool snapshot_bf16(Step& step, const Past& past) {
  return kept_in_bf16(step, past, Where::kSnapshot);
}
bool swapped_through_bf16(Step& step, const Past& past) {
  return kept_in_bf16(step, past, Where::kSwap);
}

bool dummy_rows_write(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  std::set<std::int64_t> used;
  for (const Row& row : step.rows) used.insert({row.slot, row.out});
  return any_changed(step.rows, [&](Row& row) {
    if (row.request >= 0) return false;
    for (const Request& parked : past.scheduler->requests()) {
      if (parked.slots.empty() || parked.position == 0) continue;
      const std::int64_t slot = parked.slots[static_cast<std::size_t>(parked.column - 1)];
      const auto owner = past.owner.find(slot);
      if (owner == past.owner.end() || !used.insert(slot).second) continue;
      row.slot = row.out = slot;
      return true;
    }
    return false;
  });
}

// A new row takes its slot as it is; `own`: what it held before it was preempted.
static bool not_reset(Step& step, const Past& past, bool own) {
  if (step.mode != Mode::kPrefill) return false;
  return any_changed(step.rows, [&](Row& row) {
    const auto owner = past.owner.find(row.slot);
    if (!row.fresh || row.restarted != own || owner == past.owner.end()) return false;
    if ((owner->second == row.request) != own) return false;
    row.fresh = false;
    return true;
  });
}

bool preempted_not_reset(Step& step, const Past& past) { return not_reset(step, past, true); }
bool slot_not_reset(Step& step, const Past& past) { return not_reset(step, past, false); }

bool rollback_plane_stale(Step& step, const Past&) {
  return any_changed(step.moves, [](Move& move) {
    if (move.from.where != Where::kPlane || move.from.index <= move.singles) return false;
    move.from.index -= move.singles;
    return true;
  });
}

bool copy_bytes_for_elements(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_restore(move)) return false;
    move.part = static_cast<std::int64_t>(call::info(past.scenario->state).bytes);
    return move.part > 1;
  });
}

bool replay_applied_again(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [&](Row& row) {
    if (row.request < 0) return false;
    const auto last = past.replayed.find(row.request);
    const auto now = std::ranges::find_if(step.moves, [&](const Move& move) {
      return move.replay && move.replay->request == row.request;
    });
    if (now == step.moves.end() && last == past.replayed.end()) return false;
    const Stretch again = now == step.moves.end() ? last->second : *now->replay;
    const Place slot{Where::kSlot, -1, row.slot};
    step.moves.push_back({.from = slot, .to = slot, .replay = again});
    return true;
  });
}

// The call runs, the slot stays as it was: zero.
bool short_prompt_not_written(Step& step, const Past& past) {
  if (step.mode != Mode::kPrefill || past.scenario->T < 2) return false;
  return any_changed(step.rows, [&](Row& row) {
    if (!row.whole_prompt || row.count != past.scenario->T) return false;
    step.moves.push_back({.from = {}, .to = {Where::kSlot, -1, row.out}});
    row.out = -1;
    return true;
  });
}

bool graph_slots_of_capture(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  const auto captured = past.first_decode.find(step.rows.size());
  if (captured == past.first_decode.end()) return false;
  const auto live = [](const Step& s) {
    return std::ranges::count_if(s.rows, [](const Row& row) { return row.slot >= 0; });
  };
  if (live(captured->second) < live(step)) return false;
  bool changed = false;
  for (std::size_t b = 0; b < step.rows.size(); ++b) {
    if (step.rows[b].slot < 0) continue;  // the number of rows is not captured
    const Row& then = captured->second.rows[b];
    changed = changed || step.rows[b].slot != then.slot;
    step.rows[b].slot = then.slot;
    step.rows[b].out = then.out;
  }
  return changed;
}

bool transfer_heads_swapped(Step& step, const Past& past) {
  const std::int64_t half = past.scenario->HV / 2;
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kSlot, Where::kSlot) || move.replay || half == 0) return false;
    move.heads = half;
    return true;
  });
}

// The bounds of the prompt are divided among two ranks, its tokens are not.
bool bounds_divided(Step& step, const Past&) {
  if (step.mode != Mode::kPrefill) return false;
  return any_changed(step.rows, [](Row& row) {
    if (row.count < 2) return false;
    row.count /= 2;
    // What would lie behind the end is taken at the end.
    for (std::int64_t& after : row.checkpoints) after = std::min(after, row.count);
    return true;
  });
}

}  // namespace goldenrule::serving
