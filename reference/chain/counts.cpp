// SPDX-License-Identifier: Apache-2.0
//
// Rows that start from the state after a wrong number of tokens of their last MTP call: whose
// number it is. One wrong count seen in several rows says more than in one.
#include <algorithm>
#include <map>

#include "reference/chain/walk.hpp"

namespace goldenrule::chain {
namespace {

// Whether each has the count of the row that stands so many places behind it among `places`, the
// rows of the MTP call whose counts were moved.
bool is_shifted(const std::vector<Rolled>& rows, const std::vector<std::int64_t>& counts,
                const std::vector<std::int64_t>& places) {
  const std::int64_t size = std::ssize(places);
  const auto fits = [&](const Rolled& r, std::int64_t shift) {
    const auto at = std::ranges::find(places, r.last_row);
    if (at == places.end()) return r.found == r.kept;
    const auto other = static_cast<std::size_t>((at - places.begin() + shift) % size);
    return counts[static_cast<std::size_t>(places[other])] == r.found;
  };
  for (std::int64_t shift = 1; rows.size() > 1 && shift < size; ++shift) {
    if (std::ranges::all_of(rows, [&](const Rolled& r) { return fits(r, shift); })) return true;
  }
  return false;
}

}  // namespace

Mistake name_of(const std::vector<Rolled>& rows, const std::vector<std::int64_t>& counts,
                bool plain_decode) {
  const auto count_of = [&](std::int64_t row) {
    return row >= 0 && row < std::ssize(counts) ? counts[static_cast<std::size_t>(row)] : -1;
  };
  const bool first_column =
      std::ranges::all_of(rows, [](const Rolled& r) { return r.row == kAtRest || r.found == 1; });
  if (plain_decode && first_column) return Mistake::kWrongColumn;
  // Without a tree the count names the right state, and then no row would have departed.
  if (std::ranges::all_of(rows, [](const Rolled& r) { return r.found == r.by_count; })) {
    return Mistake::kTokenByCount;
  }
  // The counts of the MTP call stand by its rows; read by those of this call, or by a shifted one
  // of all rows or of those that kept anything.
  const bool by_new_row = std::ranges::all_of(rows, [&](const Rolled& r) {
    return r.row == kAtRest ? r.found == r.kept : count_of(r.row) == r.found;
  });
  if (by_new_row) return Mistake::kOtherRowsCount;
  std::vector<std::int64_t> all;
  std::vector<std::int64_t> kept;
  for (std::int64_t row = 0; row < std::ssize(counts); ++row) {
    all.push_back(row);
    if (count_of(row) > 0) kept.push_back(row);
  }
  if (is_shifted(rows, counts, all) || is_shifted(rows, counts, kept)) {
    return Mistake::kOtherRowsCount;
  }
  if (first_column) return Mistake::kWrongColumn;
  const Rolled* wrong = nullptr;
  bool one_step = true;  // off by the same number in every row that is wrong
  bool all_borrowed = true;
  for (const Rolled& r : rows) {
    if (r.found == r.kept) continue;
    if (wrong != nullptr && wrong->found - wrong->kept != r.found - r.kept) one_step = false;
    wrong = &r;
    bool borrowed = false;
    for (std::int64_t row = 0; row < std::ssize(counts); ++row) {
      borrowed = borrowed || (row != r.last_row && count_of(row) == r.found);
    }
    all_borrowed = all_borrowed && borrowed;
  }
  return all_borrowed && !one_step ? Mistake::kOtherRowsCount : Mistake::kWrongRollback;
}

// After how many tokens of its last MTP call a row starts; nothing where it follows none, or nobody
// knows.
std::optional<Rolled> CallWalk::rolled(const RowWalk& row) const {
  const auto found = memory_.requests.find(row.id.request);
  if (found == memory_.requests.end() || row.fresh || row.id.restored_from) return std::nullopt;
  const Request& request = found->second;
  if (!request.mtp || !request.kept || !row.start) return std::nullopt;
  Rolled rolled{row.row, request.row, *request.kept, *request.kept, request.depth()};
  const auto departure = std::ranges::find(
      departures_, static_cast<std::size_t>(&row - rows_.data()), &Departure::row);
  if (departure == departures_.end()) return rolled;
  if (!departure->name.rolled_to) return std::nullopt;
  rolled.found = *departure->name.rolled_to;
  return rolled;
}

// Requests that wait with their states in their slots have followed the MTP call as well.
std::vector<Rolled> CallWalk::rolled_at_rest(std::int64_t mtp) const {
  std::vector<Rolled> rolled;
  const call::Tensor* pool = record_.find_input("initial_state");
  for (const auto& [id, request] : memory_.requests) {
    const bool here =
        std::ranges::any_of(rows_, [id = id](const RowWalk& row) { return row.id.request == id; });
    if (here || request.call != mtp || !request.kept || request.slot < 0 || pool == nullptr ||
        request.slot >= pool->shape().front()) {
      continue;
    }
    const std::optional<Stored> x = block("inputs", "initial_state", request.slot);
    for (const auto& [count, stored] : request.left) {
      if (stored.values != x->values) continue;
      rolled.push_back({kAtRest, request.row, *request.kept, count, request.depth()});
      break;
    }
  }
  return rolled;
}

// Whether every row that follows an MTP call starts from as many tokens of it as the row behind it
// was to start from, the last one from those of the first.
bool CallWalk::counts_of_next_row() const {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::optional<Rolled> here = rolled(rows_[i]);
    if (!here) continue;
    const auto next = memory_.requests.find(rows_[(i + 1) % rows_.size()].id.request);
    const bool mtp = next != memory_.requests.end() && next->second.mtp;
    if (here->found != (mtp ? next->second.kept.value_or(-1) : 1)) return false;
    ++rows;
  }
  return rows > 1;
}

void CallWalk::name_departures() {
  std::map<std::int64_t, std::vector<Rolled>> by_call;
  for (const RowWalk& row : rows_) {
    const std::optional<Rolled> found = rolled(row);
    if (found) by_call[memory_.requests.at(row.id.request).call].push_back(*found);
  }
  const bool of_next = counts_of_next_row();
  for (const Departure& departure : departures_) {
    if (!departure.name.rolled_to) continue;
    const Request& request = memory_.requests.at(rows_[departure.row].id.request);
    std::vector<Rolled> rows = by_call[request.call];
    const auto is_this = [&](const Rolled& r) { return r.row == rows_[departure.row].row; };
    if (std::ranges::none_of(rows, is_this)) continue;  // it does not follow the MTP call
    for (const Rolled& r : rolled_at_rest(request.call)) rows.push_back(r);
    Mistake& name = findings_[departure.finding].mistake;
    name = name_of(rows, *request.counts, record_.mode == call::Mode::kDecode);
    if (of_next && name == Mistake::kWrongRollback) name = Mistake::kOtherRowsCount;
  }
}

}  // namespace goldenrule::chain
