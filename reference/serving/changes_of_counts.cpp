// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of which token of an MTP call a request goes on from.
#include "reference/serving/changes.hpp"

#include "fixtures/call/token_tree.hpp"

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

// Every state that is copied into its slot after an MTP call becomes the one that f(row of the MTP
// call) names, as in Snapshot::after; none where that is 0.
template <class F>
static bool commit_other(Step& step, const Past& past, F&& f) {
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

// The same of what is committed and, where each token has its slot, of the slot that is read.
template <class F>
static bool go_on_from(Step& step, const Past& past, F&& f) {
  const bool committed = commit_other(step, past, f);
  if (past.scenario->mtp != cases::MtpForm::kScatter) return committed;
  return any_changed(step.rows, [&](Row& row) {
    const auto last = past.mtp_rows.find(row.request);
    if (last == past.mtp_rows.end() || last->second.kept != row.column) return false;
    const std::int64_t after = f(last->second);
    const bool has_slot =
        after >= 1 && after <= std::ssize(row.columns);  // else: not read by column
    if (!has_slot || after == row.column) return false;
    row.column = after;
    row.slot = row.columns[static_cast<std::size_t>(after - 1)];
    return true;
  });
}

bool tree_token_by_count(Step& step, const Past& past) {
  return go_on_from(step, past, [](const Row& row) { return row.accepted; });
}

bool rollback_one_long(Step& step, const Past& past) {
  return go_on_from(step, past, [](const Row& row) {
    return row.parents.empty() ? std::min(row.kept + 1, row.count) : row.kept;
  });
}

bool counts_of_mtp_before(Step& step, const Past& past) {
  return go_on_from(step, past, [&](const Row& row) {
    const auto before = past.kept_before.find(row.request);
    return before == past.kept_before.end() ? row.kept : before->second;
  });
}

bool tree_sibling(Step& step, const Past& past) {
  return go_on_from(step, past, [](const Row& row) {
    if (row.parents.empty()) return row.kept;
    const std::int64_t parent = row.parents[static_cast<std::size_t>(row.kept - 1)];
    for (std::int64_t t = 0; t < row.count; ++t) {
      if (t != row.kept - 1 && row.parents[static_cast<std::size_t>(t)] == parent) return t + 1;
    }
    return row.kept;
  });
}

bool tree_deepest(Step& step, const Past& past) {
  return go_on_from(step, past, [](const Row& row) {
    std::int64_t deepest = row.kept;
    for (std::int64_t after = 1; !row.parents.empty() && after <= row.count; ++after) {
      const bool deeper = call::depth_of(row.parents, after) > call::depth_of(row.parents, deepest);
      if (deeper) deepest = after;
    }
    return deepest;
  });
}

}  // namespace goldenrule::serving
