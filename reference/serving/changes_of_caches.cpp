// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of the caches of attention and of draft acceptances.
#include "reference/serving/changes.hpp"

namespace goldenrule::serving {

using call::Mode;

// The first row with a request that f(row) takes errs.
template <class F>
static bool first_errs(Step& step, const Past& past, CacheChange change, F&& f) {
  if (past.scenario->cache == 0) return false;
  for (const Row& row : step.rows) {
    if (row.request < 0 || !f(row)) continue;
    step.cache = change;
    step.cache.request = row.request;
    return true;
  }
  return false;
}

// The row behind it that has a request, the first one behind the last.
static const Row* next_of(const Step& step, const Row& row) {
  std::vector<const Row*> live;
  for (const Row& r : step.rows) {
    if (r.request >= 0) live.push_back(&r);
  }
  const auto at = std::ranges::find(live, &row) - live.begin();
  return live.size() < 2 ? nullptr : live[static_cast<std::size_t>(at + 1) % live.size()];
}

static bool has_page(const Row& row, const Past& past) {
  return row.position >= past.scenario->cache;
}

// Whether the call before was an MTP call, and the request goes on behind it.
static bool follows_mtp(const Row& row, const Past& past) {
  const auto last = past.mtp_rows.find(row.request);
  return last != past.mtp_rows.end() && row.restored_from < 0 &&
         row.position == last->second.position + last->second.accepted;
}
static bool follows_rejection(const Row& row, const Past& past) {
  return follows_mtp(row, past) &&
         past.mtp_rows.at(row.request).accepted < past.mtp_rows.at(row.request).count;
}

bool cache_page_of_next(Step& step, const Past& past) {
  return first_errs(step, past, {CacheFault::kPageOfNext}, [&](const Row& row) {
    const Row* next = next_of(step, row);
    return next != nullptr && has_page(row, past) && has_page(*next, past);
  });
}

bool cache_table_of_last(Step& step, const Past& past) {
  if (past.scenario->cache == 0 || step.mode != Mode::kDecode) return false;
  step.cache.fault = CacheFault::kTableOfLast;
  return true;
}

// A row that needs a new page, and is given the last one of the next.
bool cache_page_given_twice(Step& step, const Past& past) {
  const std::int64_t P = past.scenario->cache;
  return first_errs(step, past, {CacheFault::kPageTwice}, [&](const Row& row) {
    const Row* next = next_of(step, row);
    return next != nullptr && has_page(*next, past) && row.position % P == 0;
  });
}

bool cache_rows_shifted(Step& step, const Past& past) {
  return first_errs(step, past, {CacheFault::kShifted},
                    [&](const Row& row) { return row.count > 1 && row.accepted > 1; });
}

bool cache_prompt_not_written(Step& step, const Past& past) {
  if (step.mode != Mode::kPrefill) return false;
  return first_errs(step, past, {CacheFault::kNotWritten}, [](const Row&) { return true; });
}

// The row behind those that an MTP call kept is left as it is: the draft that was rejected.
bool cache_draft_stays(Step& step, const Past& past) {
  return first_errs(step, past, {CacheFault::kNotWritten},
                    [&](const Row& row) { return follows_rejection(row, past); });
}

static bool stores(Step& step, const Past& past, CacheFault fault) {
  return first_errs(step, past, {fault}, [](const Row& row) { return row.accepted > 0; });
}
bool cache_zeros(Step& step, const Past& past) { return stores(step, past, CacheFault::kZeros); }
bool cache_noise(Step& step, const Past& past) { return stores(step, past, CacheFault::kNoise); }
bool cache_heads_moved(Step& step, const Past& past) {
  return past.scenario->H > 1 && stores(step, past, CacheFault::kHeadsMoved);
}

// Behind an MTP call that rejected something, the first rejected row counts as a token.
bool cache_not_cropped(Step& step, const Past& past) {
  return first_errs(step, past, {CacheFault::kLengthOff, -1, 1},
                    [&](const Row& row) { return follows_rejection(row, past); });
}

bool cache_cropped_too_far(Step& step, const Past& past) {
  return first_errs(step, past, {CacheFault::kLengthOff, -1, -1},
                    [&](const Row& row) { return follows_mtp(row, past); });
}

static bool changes_acceptance(Step& step, const Past& past, CacheChange change,
                               std::int64_t least) {
  if (step.mode != Mode::kMtp) return false;
  return first_errs(step, past, change, [&](const Row& row) {
    const bool commits = change.fault == CacheFault::kCommitsOff;
    return row.accepted >= least && (!commits || row.accepted + change.off <= row.count);
  });
}
// Where one token was accepted, the next block begins there.
bool acceptance_starts_late(Step& step, const Past& past) {
  return changes_acceptance(step, past, {CacheFault::kStartOff, -1, 1}, 2);
}
bool acceptance_commits_more(Step& step, const Past& past) {
  return changes_acceptance(step, past, {CacheFault::kCommitsOff, -1, 1}, 1);
}
bool acceptance_commits_less(Step& step, const Past& past) {
  return changes_acceptance(step, past, {CacheFault::kCommitsOff, -1, -1}, 2);
}

bool acceptance_counts_moved(Step& step, const Past& past) {
  if (past.scenario->cache == 0 || step.mode != Mode::kMtp) return false;
  std::vector<std::int64_t> counts;
  for (const Row& row : step.rows) {
    if (row.request >= 0 && row.accepted > 0) counts.push_back(row.accepted);
  }
  if (counts.empty() || std::ranges::count(counts, counts.front()) == std::ssize(counts)) {
    return false;
  }
  step.cache.fault = CacheFault::kCommitsMoved;
  return true;
}

}  // namespace goldenrule::serving
