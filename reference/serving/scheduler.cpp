// SPDX-License-Identifier: Apache-2.0
//
// Length: one state machine, whose parts share all of its fields.
#include "reference/serving/scheduler.hpp"

#include <algorithm>
#include <utility>

#include "fixtures/call/token_tree.hpp"

namespace goldenrule::serving {
namespace {

using cases::MtpForm;
using cases::Preemption;
using Where = Place::Where;

// Once in so many rounds, and how often a request of the batch is in a call.
constexpr std::int64_t kRoundsPerEvent = 3;
constexpr std::int64_t kRowsInFour = 3;

}  // namespace

Scheduler::Scheduler(const cases::Scenario& scenario)
    : scenario_(scenario), stream_(scenario.seed, "serving/schedule") {
  const cases::Scenario& s = scenario_;
  for (std::int64_t r = 0; r < s.requests; ++r) {
    Request request;
    // Prompts of every length, and now and then as many tokens as an MTP call has.
    request.prompt = s.T > 1 && draw(0, 3) == 0 ? std::min(s.T, s.prompt) : draw(1, s.prompt);
    request.total = request.prompt + draw((s.output + 1) / 2, s.output);
    if (s.share != 0 && r % 2 == 1) {
      const std::int64_t common = std::min(requests_.back().prompt, request.prompt - 1);
      request.shared = common / s.block * s.block;
    }
    requests_.push_back(std::move(request));
    waiting_.push_back(r);
  }
  const std::int64_t columns = s.mtp == MtpForm::kScatter ? s.T : 1;
  const std::int64_t groups = cases::resident_requests(s);
  for (std::int64_t g = groups; g-- > 0;) free_.push_back(g);
  slot_count_ = groups * columns;
}

std::int64_t Scheduler::draw(std::int64_t low, std::int64_t high) {
  const auto range = static_cast<std::uint64_t>(high - low + 1);
  return low + static_cast<std::int64_t>(stream_.bits(draws_++) % range);
}

Place Scheduler::state_of(std::int64_t request) const {
  const Request& r = requests_[static_cast<std::size_t>(request)];
  return {Where::kSlot, -1, r.slots[static_cast<std::size_t>(r.column - 1)]};
}

std::optional<Step> Scheduler::next() {
  while (steps_.empty()) {
    if (batch_.empty() && waiting_.empty()) return std::nullopt;
    iterate();
  }
  Step step = std::move(steps_.front());
  steps_.pop_front();
  return step;
}

void Scheduler::iterate() {
  retire();
  if (draw(1, kRoundsPerEvent) == 1) preempt();
  roll_back();
  admit();
  std::vector<std::int64_t> prefill;
  std::vector<std::int64_t> decode;
  std::vector<std::int64_t> mtp;
  for (const std::int64_t request : batch_) {
    if (draw(1, 4) > kRowsInFour) continue;  // it waits, with its state in its slot
    const Request& r = at(request);
    if (r.position < r.prompt) {
      prefill.push_back(request);
    } else if (scenario_.T > 1 && r.position + scenario_.T <= r.total && draw(0, 1) == 1) {
      mtp.push_back(request);
    } else {
      decode.push_back(request);
    }
  }
  if (!prefill.empty()) add_prefill(prefill);
  if (!decode.empty()) add_decode(decode);
  if (!mtp.empty()) add_mtp(mtp);
}

// The last row of the batch moves into the place of the one that leaves.
void Scheduler::leave(std::size_t row) {
  Request& r = at(batch_[row]);
  free_.push_back(r.slots.front() / std::ssize(r.slots));
  r.slots.clear();
  r.column = 1;
  r.replayed = {};
  if (row + 1 < batch_.size()) compacted_ = true;
  batch_[row] = batch_.back();
  batch_.pop_back();
}

void Scheduler::retire() {
  for (std::size_t row = batch_.size(); row-- > 0;) {
    if (at(batch_[row]).position >= at(batch_[row]).total) leave(row);
  }
}

void Scheduler::preempt() {
  if (scenario_.preempt == Preemption::kNone || batch_.empty()) return;
  const auto row = static_cast<std::size_t>(draw(0, std::ssize(batch_) - 1));
  const std::int64_t request = batch_[row];
  Request& r = at(request);
  if (r.position == 0) return;
  switch (scenario_.preempt) {
    case Preemption::kNone:
      return;
    case Preemption::kZero:
      r.position = 0;
      break;
    case Preemption::kSwap:
      pending_.push_back({.from = state_of(request), .to = {Where::kSwap, request, 0}});
      r.swapped = true;
      break;
    case Preemption::kSnapshot: {
      const auto later = r.snapshots.upper_bound(std::min(r.position, r.prompt));
      r.position = later == r.snapshots.begin() ? 0 : *std::prev(later);
      break;
    }
  }
  leave(row);
  waiting_.push_front(request);
}

// The state of an earlier token is one that the last MTP call left, d tokens back of which m have
// been decoded since: d - m of the accepted ones are taken back.
void Scheduler::roll_back() {
  if (scenario_.rollback == 0) return;
  for (const std::int64_t request : batch_) {
    Request& r = at(request);
    const Stretch& last = r.replayed;
    const bool can =
        last.count > 1 && r.singles > 0 && r.position == last.begin + last.count + r.singles;
    if (!can || draw(0, 1) == 0) continue;
    const std::int64_t plane = draw(1, last.count - 1);
    pending_.push_back(
        {.from = {Where::kPlane, request, plane}, .to = state_of(request), .singles = r.singles});
    r.position = last.begin + plane;
    r.restored_from = request;
    r.replayed = {};
  }
}

void Scheduler::admit() {
  while (!waiting_.empty() && !free_.empty() && (batch_.empty() || draw(0, 1) == 1)) {
    const std::int64_t request = waiting_.front();
    waiting_.pop_front();
    Request& r = at(request);
    const std::int64_t columns = slot_count() / cases::resident_requests(scenario_);
    const std::int64_t first = free_.back() * columns;
    free_.pop_back();
    for (std::int64_t c = 0; c < columns; ++c) r.slots.push_back(first + c);
    batch_.push_back(request);
    if (r.swapped) {
      pending_.push_back({.from = {Where::kSwap, request, 0}, .to = state_of(request)});
      r.swapped = false;
    } else if (r.position > 0) {
      r.restored_from = request;
      pending_.push_back(
          {.from = {Where::kSnapshot, request, r.position}, .to = state_of(request)});
    } else if (!r.started && r.shared > 0 && at(request - 1).snapshots.contains(r.shared)) {
      r.position = r.shared;
      r.restored_from = request - 1;
      pending_.push_back(
          {.from = {Where::kSnapshot, request - 1, r.shared}, .to = state_of(request)});
    }
  }
}

// A request whose prompt is done goes on elsewhere.
void Scheduler::transfer(std::int64_t request) {
  if (scenario_.transfer == 0 || free_.empty()) return;
  Request& r = at(request);
  const Place from = state_of(request);
  const std::int64_t columns = std::ssize(r.slots);
  const std::int64_t left = r.slots.front() / columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    r.slots[static_cast<std::size_t>(c)] = free_.back() * columns + c;
  }
  free_.pop_back();
  free_.insert(free_.begin(), left);
  pending_.push_back({.from = from, .to = state_of(request)});
}

void Scheduler::keep_snapshot(std::int64_t request, const Place& from) {
  Request& r = at(request);
  if (scenario_.block == 0 || r.position % scenario_.block != 0 || r.position == 0) return;
  pending_.push_back({.from = from, .to = {Where::kSnapshot, request, r.position}});
  r.snapshots.insert(r.position);
}

void Scheduler::push(call::Mode mode, std::vector<Row> rows) {
  if (mode != call::Mode::kPrefill) {
    while (std::ssize(rows) % scenario_.graph != 0) {
      Row padded;
      padded.count = rows.front().count;
      padded.columns.assign(rows.front().columns.size(), -1);
      rows.push_back(std::move(padded));
    }
  }
  steps_.push_back({.moves = std::exchange(pending_, {}),
                    .mode = mode,
                    .rows = std::move(rows),
                    .compacted = std::exchange(compacted_, false)});
}

Row Scheduler::row_of(std::int64_t request) {
  Request& r = at(request);
  return {.request = request,
          .position = r.position,
          .restored_from = std::exchange(r.restored_from, -1),
          .slot = state_of(request).index,
          .column = r.column};
}

void Scheduler::add_prefill(const std::vector<std::int64_t>& requests) {
  std::vector<Row> rows;
  for (const std::int64_t request : requests) {
    const Request& r = at(request);
    Row row = row_of(request);
    row.count = std::min(draw((scenario_.chunk + 1) / 2, scenario_.chunk), r.prompt - r.position);
    row.accepted = row.count;
    row.out = r.slots.front();
    row.fresh = r.position == 0;
    row.restarted = row.fresh && r.started;
    row.whole_prompt = row.count == r.prompt;
    for (std::int64_t after = 1; scenario_.block > 0 && after <= row.count; ++after) {
      if ((r.position + after) % scenario_.block == 0) row.checkpoints.push_back(after);
    }
    rows.push_back(std::move(row));
  }
  push(call::Mode::kPrefill, rows);
  std::int64_t checkpoint = 0;
  for (const Row& row : rows) {
    Request& r = at(row.request);
    r.started = true;
    r.column = 1;
    for (const std::int64_t after : row.checkpoints) {
      r.position = row.position + after;
      keep_snapshot(row.request, {Where::kCheckpoint, -1, checkpoint++});
    }
    r.position = row.position + row.count;
    if (r.position == r.prompt) transfer(row.request);
  }
}

void Scheduler::add_decode(const std::vector<std::int64_t>& requests) {
  std::vector<Row> rows;
  for (const std::int64_t request : requests) {
    const Request& r = at(request);
    Row row = row_of(request);
    row.count = row.accepted = 1;
    row.out = r.slots.front();
    row.columns = r.slots;
    rows.push_back(std::move(row));
  }
  push(call::Mode::kDecode, rows);
  for (const Row& row : rows) {
    Request& r = at(row.request);
    r.column = 1;
    ++r.position;
    ++r.singles;
    keep_snapshot(row.request, state_of(row.request));
  }
}

void Scheduler::add_mtp(const std::vector<std::int64_t>& requests) {
  const bool scatter = scenario_.mtp == MtpForm::kScatter;
  std::vector<Row> rows;
  for (const std::int64_t request : requests) {
    Row row = row_of(request);
    row.count = scenario_.T;
    row.kept = draw(scatter ? 1 : 0, scenario_.T);
    for (std::int64_t t = 0; scenario_.tree != 0 && t < row.count; ++t) {
      row.parents.push_back(draw(-1, t - 1));
    }
    row.accepted = call::depth_of(row.parents, row.kept);
    if (scatter) row.columns = at(request).slots;
    rows.push_back(std::move(row));
  }
  push(call::Mode::kMtp, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    accept(static_cast<std::int64_t>(i), rows[i]);
  }
}

void Scheduler::accept(std::int64_t place, const Row& row) {
  const std::int64_t request = row.request;
  const std::int64_t accepted = row.accepted;
  Request& r = at(request);
  r.replayed = {request, r.position, accepted};
  r.singles = 0;
  const auto left = [&](std::int64_t token) {
    return Place{Where::kIntermediate, -1, place * scenario_.T + token};
  };
  const std::vector<std::int64_t> path = call::path_to(row.parents, row.kept);
  switch (scenario_.mtp) {
    case MtpForm::kScatter:
      r.column = row.kept;
      break;
    case MtpForm::kCommit:
      for (std::int64_t t = 0; scenario_.rollback != 0 && t < accepted; ++t) {
        pending_.push_back({.from = left(path[static_cast<std::size_t>(t)]),
                            .to = {Where::kPlane, request, t + 1}});
      }
      if (accepted > 0) {
        pending_.push_back({.from = left(path.back()), .to = state_of(request)});
      }
      break;
    case MtpForm::kReplay:
      if (accepted > 0) {
        pending_.push_back(
            {.from = state_of(request), .to = state_of(request), .replay = r.replayed});
      }
      break;
  }
  r.position += accepted;
  if (accepted > 0) keep_snapshot(request, state_of(request));
}

}  // namespace goldenrule::serving
