// SPDX-License-Identifier: Apache-2.0
//
// Length: one table and the changes that its rows name.
#include "reference/serving/mistakes.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/row_named.hpp"
#include "fixtures/call/token_tree.hpp"

namespace goldenrule::serving {
namespace {

using call::Mode;
using Where = Place::Where;
using Named = chain::Mistake;

// Applies f to every row (move) and says whether any call of it returned true.
template <class Range, class F>
bool any_changed(Range& range, F&& f) {
  bool changed = false;
  for (auto& x : range) changed = f(x) || changed;
  return changed;
}

const Request& request_of(const Past& past, std::int64_t request) {
  return past.scheduler->requests()[static_cast<std::size_t>(request)];
}

bool is_copy(const Move& move, Where from, Where to) {
  return move.from.where == from && move.to.where == to;
}
// Out of what is kept beside the pool, into it.
bool is_restore(const Move& move) {
  return move.to.where == Where::kSlot &&
         (move.from.where == Where::kSnapshot || move.from.where == Where::kSwap);
}

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
  if (past.scenario->verify == cases::VerifyForm::kScatter) {
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

bool snapshot_bf16(Step& step, const Past& past) {
  if (past.scenario->state == call::DType::kBF16) return false;
  return any_changed(step.moves, [](Move& move) {
    if (move.to.where != Where::kSnapshot) return false;
    move.through = call::DType::kBF16;
    return true;
  });
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
template <bool own>
bool not_reset(Step& step, const Past& past) {
  if (step.mode != Mode::kPrefill) return false;
  return any_changed(step.rows, [&](Row& row) {
    const auto owner = past.owner.find(row.slot);
    if (!row.fresh || row.restarted != own || owner == past.owner.end()) return false;
    if ((owner->second == row.request) != own) return false;
    row.fresh = false;
    return true;
  });
}

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

// Every state that is copied into its slot after a verify becomes the one that f(row of the verify)
// names, as in Snapshot::after; none where that is 0.
template <class F>
bool commit_other(Step& step, const Past& past, F&& f) {
  const std::int64_t T = past.scenario->T;
  const auto is_commit = [](const Move& move) {
    return is_copy(move, Where::kIntermediate, Where::kSlot);
  };
  bool changed = false;
  for (Move& move : step.moves) {
    if (!is_commit(move)) continue;
    const std::int64_t row = move.from.index / T;
    const std::int64_t after = f(past.last.rows[static_cast<std::size_t>(row)]);
    const std::int64_t index = after == 0 ? -1 : row * T + after - 1;
    changed = changed || move.from.index != index;
    move.from.index = index;
  }
  std::erase_if(step.moves,
                [&](const Move& move) { return is_commit(move) && move.from.index < 0; });
  return changed;
}

bool rollback_one_short(Step& step, const Past& past) {
  return commit_other(step, past,
                      [](const Row& row) { return call::continued_by(row.parents, row.kept); });
}

bool tree_token_by_count(Step& step, const Past& past) {
  const bool committed = commit_other(step, past, [](const Row& row) { return row.accepted; });
  if (past.scenario->verify != cases::VerifyForm::kScatter) return committed;
  return any_changed(step.rows, [&](Row& row) {
    const auto last = past.verified.find(row.request);
    const bool here = last != past.verified.end() && last->second.kept == row.column;
    if (!here || last->second.accepted == row.column) return false;
    row.column = last->second.accepted;
    row.slot = row.columns[static_cast<std::size_t>(row.column - 1)];
    return true;
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

bool parameters_bf16(Step& step, const Past& past) {
  const call::Gate gate = past.scenario->convention.gate;
  if (step.mode != Mode::kDecode) return false;
  if (gate != call::Gate::kSoftplus && gate != call::Gate::kBounded) return false;
  step.parameters = call::DType::kBF16;
  return true;
}

// Where the outputs of a model are that large.
bool output_f16(Step& step, const Past& past) {
  constexpr double kLargeScale = 1e4;
  if (past.scenario->convention.scale < kLargeScale) return false;
  step.outputs = call::DType::kF16;
  return true;
}

bool key_buffer_reused(Step& step, const Past& past) {
  step.keys_of_last = step.mode == Mode::kDecode && past.last.mode == Mode::kDecode &&
                      past.last.rows.size() >= step.rows.size();
  return step.keys_of_last;
}

constexpr std::array kTable{
    ServerMistake{"verify_column_zero",
                  "after a verify that accepted two tokens or more, a plain decode starts from the "
                  "state of the first token",
                  "vLLM #39273, #40738, #52942, #55504", Named::kWrongColumn, column_zero},
    ServerMistake{"accepted_of_other_row",
                  "after rows have moved up in the batch, a verify goes on from as many tokens as "
                  "another row has accepted",
                  "vLLM #45100, #51571, #53919, vllm-ascend #13863", Named::kOtherRowsCount,
                  counts_of_other_row, Named::kWrongColumn},
    ServerMistake{"boundary_copy_backwards",
                  "the copy of the state at a block boundary runs from the older snapshot into the "
                  "slot",
                  "vLLM #53505", Named::kOffBoundary, boundary_copy_backwards},
    ServerMistake{"snapshot_off_boundary",
                  "the snapshot of a block boundary is the state at the end of the call",
                  "vLLM #43559, #51113", Named::kOffBoundary, snapshot_off_boundary},
    ServerMistake{"dummy_rows_write",
                  "rows of graph padding name slots of requests that are not in the call",
                  "vLLM #37728, TensorRT-LLM #13151", Named::kOverwritten, dummy_rows_write},
    ServerMistake{"preempted_not_reset",
                  "a preempted request starts again from its first token on the state that it had",
                  "vllm-metal #488", Named::kStaleSlot, not_reset<true>},
    ServerMistake{"slot_not_reset",
                  "a new request starts from the state that a former request left in its slot",
                  "llama.cpp #29092", Named::kStaleSlot, not_reset<false>},
    ServerMistake{"rollback_plane_stale",
                  "going back d tokens takes the state d before the end of the verify, though m "
                  "tokens have been decoded since: d - m is right",
                  "llama.cpp #22746, #29117", Named::kWrongRollback, rollback_plane_stale},
    ServerMistake{"copy_bytes_for_elements",
                  "a kept state is copied back with a count of elements where bytes are wanted",
                  "llama.cpp #20700", Named::kCopiedInPart, copy_bytes_for_elements},
    ServerMistake{"rollback_one_short",
                  "a verify goes on from the state one token before the last accepted one",
                  "mlx-swift-lm #143", Named::kWrongRollback, rollback_one_short,
                  Named::kWrongColumn},
    ServerMistake{"tree_token_by_count",
                  "a verify of a tree goes on from the state of token count - 1, not of the last "
                  "token that was accepted",
                  "SGLang #27463", Named::kTokenByCount, tree_token_by_count, Named::kWrongColumn},
    ServerMistake{"replay_applied_again",
                  "the tokens that a verify accepted are applied to the state again before every "
                  "decode",
                  "turboquant llama.cpp #352", Named::kReplayedTwice, replay_applied_again},
    ServerMistake{"snapshot_not_written", "snapshots are never written", "SGLang #31474, #30862",
                  Named::kNotWritten, snapshot_not_written},
    ServerMistake{"snapshot_grid_doubled",
                  "snapshots are packed one for each block and looked up as one for every second",
                  "SGLang #35086", Named::kOffBoundary, snapshot_grid_doubled},
    ServerMistake{"snapshot_bf16", "snapshots are rounded to bf16, the pool is wider",
                  "SGLang #34820", Named::kNarrowed, snapshot_bf16},
    ServerMistake{"short_prompt_not_written",
                  "a prompt of as many tokens as a verify has is taken for one: its state is not "
                  "written",
                  "vLLM #47123, #49918, #53051", Named::kNotWritten, short_prompt_not_written},
    ServerMistake{"graph_slots_of_capture",
                  "a replayed decode graph has the slots with which it was captured",
                  "vllm-ascend #13277", Named::kOtherRequest, graph_slots_of_capture},
    ServerMistake{"transfer_heads_swapped",
                  "a state that moves between unequally divided servers arrives with the halves of "
                  "its heads exchanged",
                  "SGLang #20655, #22060, #23746, vLLM #55208", Named::kHeadsMoved,
                  transfer_heads_swapped},
    ServerMistake{"bounds_divided",
                  "the bounds of a prompt are divided by the number of ranks, so that each reads "
                  "its beginning",
                  "ISEEKYAN/Megatron-LM #111", Named::kTokensMissing, bounds_divided},
    ServerMistake{
        "parameters_bf16",
        "A_log and dt_bias are rounded to bf16 before decode calls, and before the others "
        "they are not",
        "Automodel #2484", Named::kParametersNarrowed, parameters_bf16},
    ServerMistake{"output_f16",
                  "o is stored in f16, whose range the outputs of the model leave while its state "
                  "grows",
                  "vLLM #54146", Named::kOverflowed, output_f16, Named::kOverflowed, true},
    ServerMistake{"key_buffer_reused",
                  "a decode reads its keys from a buffer in which those of the decode before it "
                  "still lie",
                  "pegainfer #411, ik_llama.cpp #1649, sparkinfer #665", Named::kOtherKeys,
                  key_buffer_reused, Named::kOtherKeys, true},
};

}  // namespace

void Past::add(const Step& meant) {
  if (meant.mode == Mode::kPrefill) prefill = meant;
  last = meant;
  if (meant.mode == Mode::kDecode) first_decode.emplace(meant.rows.size(), meant);
  for (const Move& move : meant.moves) {
    if (move.replay) replayed[move.replay->request] = *move.replay;
  }
  for (const Row& row : meant.rows) {
    if (row.request < 0) continue;
    verified.erase(row.request);
    if (meant.mode == Mode::kMtp) verified.emplace(row.request, row);
    if (meant.mode == Mode::kPrefill) replayed.erase(row.request);
    for (const std::int64_t slot : row.columns) owner[slot] = row.request;
    if (row.out >= 0) owner[row.out] = row.request;
  }
}

std::span<const ServerMistake> server_mistakes() { return kTable; }

const ServerMistake* find_server_mistake(std::string_view name) {
  if (name.empty()) return nullptr;
  return &call::row_named(kTable, name, ErrorKind::kArgument, "scenario line: mistake");
}

}  // namespace goldenrule::serving
