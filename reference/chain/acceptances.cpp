// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/acceptances.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/text.hpp"
#include "reference/chain/walk.hpp"
#include "reference/drafts/plan/plan.hpp"

namespace goldenrule::chain {
namespace {

using Number = std::optional<std::int64_t>;

// Output `name` of a row, where it is stored.
Number stored(const call::Record& record, const char* name, std::int64_t row) {
  const auto found = record.outputs.find(name);
  if (found == record.outputs.end()) return std::nullopt;
  return static_cast<std::int64_t>(found->second[row]);
}

// How many tokens of its block a row keeps, by what is stored of that.
Number committed_of(const call::Record& record, const call::Dims& dims, const call::ChainRow& id,
                    std::int64_t row, std::int64_t start) {
  if (const Number c = stored(record, "committed", row)) return c;
  if (const Number end = stored(record, "target_len", row)) return *end - start;
  const std::int64_t width = dims.drafts + 1;
  const auto count = [&](const char* name, double none) {
    std::int64_t n = 0;
    while (n < width && record.outputs.at(name)[row * width + n] != none) ++n;
    return n;
  };
  if (record.outputs.contains("keep")) return count("keep", 0.0);
  const std::int64_t pad = record.convention.pad_token;
  // Padding that is a token of the vocabulary may be one that was emitted.
  if (record.outputs.contains("tokens") && pad < 0) {
    return count("tokens", static_cast<double>(pad));
  }
  return id.accepted;
}

Number draft_len_of(const call::Record& record, const Acceptance& now, std::int64_t row) {
  if (const Number length = stored(record, "draft_len", row)) return length;
  if (record.convention.draft_crop == call::DraftCrop::kStart) return now.start;
  return now.target_len();
}

Finding departure(const Call& call, const call::ChainRow& id, std::int64_t row, Mistake mistake,
                  std::int64_t position, std::string text) {
  return {.check = Check::kContinuity,
          .mistake = mistake,
          .call = call.index,
          .request = id.request,
          .row = row,
          .position = position,
          .text = std::move(text)};
}

}  // namespace

std::string words_of_counts(std::int64_t request, std::int64_t committed, std::int64_t count) {
  return "the draft acceptance commits " + call::numbered(committed, "token") + " of request " +
         std::to_string(request) + ", the server goes on with " + std::to_string(count);
}

void name_counts(const std::vector<std::int64_t>& counts, const std::vector<Followed>& followed,
                 std::vector<Finding>& findings) {
  std::vector<std::int64_t> places;  // rows that are no padding
  for (std::int64_t row = 0; row < std::ssize(counts); ++row) {
    if (counts[static_cast<std::size_t>(row)] >= 0) places.push_back(row);
  }
  const auto fits = [&](const Followed& f, std::int64_t shift) {
    const auto at = std::ranges::find(places, f.row) - places.begin();
    const auto other = static_cast<std::size_t>((at + shift) % std::ssize(places));
    return at < std::ssize(places) && counts[static_cast<std::size_t>(places[other])] == f.count;
  };
  bool moved = false;
  for (std::int64_t shift = 1; followed.size() > 1 && shift < std::ssize(places); ++shift) {
    moved = moved || std::ranges::all_of(followed, [&](const auto& f) { return fits(f, shift); });
  }
  for (const Followed& f : followed) {
    if (f.finding == Followed::kRight || !moved) continue;
    findings[f.finding].mistake = Mistake::kOtherRowsCount;
  }
}

Acceptance* Acceptances::find(std::int64_t request) {
  const auto found = of_requests_.find(request);
  return found == of_requests_.end() ? nullptr : &found->second;
}

void Acceptances::count(Acceptance& now) const {
  if (!now.counted) ++memory_.summary.acceptances_followed;
  now.counted = true;
}

// The tokens at which a request may stand; empty: nobody says. The MTP call of the block comes
// before the draft acceptance in most servers, and behind it in those that replay what was kept.
std::vector<std::int64_t> Acceptances::expected_starts(const Acceptance* before,
                                                       const Request* request) const {
  const Number end = before == nullptr ? Number() : before->target_len();
  if (request == nullptr) return {};
  if (before != nullptr && request->call < before->call) {
    return end ? std::vector{*end} : std::vector<std::int64_t>();
  }
  // The MTP call replays the block of the draft acceptance before, or is of this one.
  const bool replayed = request->mtp && before != nullptr && request->base == before->start;
  if (replayed || (request->mtp && end && request->base == *end)) {
    return end ? std::vector{*end} : std::vector<std::int64_t>();
  }
  std::vector<std::int64_t> starts;
  if (request->mtp) starts.push_back(request->base);
  if (request->kept) starts.push_back(request->position());
  return starts;
}

void Acceptances::check_start(const Call& call, const call::ChainRow& row, const Acceptance& now,
                              std::vector<Finding>& findings) const {
  const auto old = of_requests_.find(row.request);
  const Acceptance* before = old == of_requests_.end() ? nullptr : &old->second;
  const auto found = memory_.requests.find(row.request);
  const Request* request = found == memory_.requests.end() ? nullptr : &found->second;
  std::vector<std::int64_t> starts = expected_starts(before, request);
  if (row.position && *row.position != now.start) starts = {*row.position};
  const Number end = before == nullptr ? Number() : before->target_len();
  if (starts.empty() && end && now.start < *end) starts = {*end};
  if (starts.empty() || std::ranges::find(starts, now.start) != starts.end()) return;
  findings.push_back(departure(call, row, now.row, Mistake::kWrongStart, now.start,
                               "the draft acceptance of request " + std::to_string(row.request) +
                                   " begins at token " + std::to_string(now.start) + ", expected " +
                                   std::to_string(starts.front())));
}

// The MTP call of the same block.
void Acceptances::meet_states(const verdict::Slice& slice, const Call& call, std::int64_t id,
                              Acceptance& now, std::vector<Followed>& followed,
                              std::vector<Finding>& findings) {
  const auto found = memory_.requests.find(id);
  if (found == memory_.requests.end() || !now.committed) return;
  Request& request = found->second;
  const Acceptance* before = find(id);
  if (before != nullptr && request.call < before->call) return;
  if (!request.mtp || request.base != now.start || !request.parents.empty()) return;
  if (!request.kept && *now.committed >= 0 && *now.committed <= request.given) {
    close_count(slice, *memory_.layout, *now.committed, request);
    now.closed = true;
    return;
  }
  const std::int64_t went = request.kept.value_or(request.given);
  count(now);
  followed.push_back({Followed::kRight, now.row, went});
  if (went == *now.committed) return;
  followed.back().finding = findings.size();
  findings.push_back(departure(call, {.request = id}, now.row, Mistake::kNotCommitted, now.start,
                               words_of_counts(id, *now.committed, went)));
  now.committed = went;
}

void Acceptances::add(const verdict::Slice& slice, const Call& call, const call::Record& record,
                      std::vector<Finding>& findings) {
  const drafts::Plan plan = drafts::make_plan(record);
  const std::vector<call::ChainRow> rows = call::chain_rows(record, plan.dims);
  std::vector<std::int64_t> counts(rows.size(), -1);
  std::vector<std::pair<std::int64_t, Acceptance>> said;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (rows[i].request == call::kNoRequest || plan.rows[i].padded()) continue;
    Acceptance now{.call = call.index, .row = row, .start = plan.rows[i].start};
    now.committed = committed_of(record, plan.dims, rows[i], row, now.start);
    now.draft_len = draft_len_of(record, now, row);
    counts[i] = now.committed.value_or(-1);
    said.emplace_back(rows[i].request, std::move(now));
  }
  const auto all = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  std::vector<Followed> followed;
  for (auto& [id, now] : said) {
    const call::ChainRow& row = rows[static_cast<std::size_t>(now.row)];
    if (memory_.reached.try_emplace(id, -1).second) ++memory_.summary.requests;
    ++memory_.summary.acceptances;
    now.counts = all;
    check_start(call, row, now, findings);
    if (row.accepted && now.committed && *row.accepted != *now.committed) {
      findings.push_back(departure(call, row, now.row, Mistake::kNotCommitted, now.start,
                                   words_of_counts(id, *now.committed, *row.accepted)));
    }
    meet_states(slice, call, id, now, followed, findings);
    of_requests_.insert_or_assign(id, std::move(now));
  }
  name_counts(*all, followed, findings);
}

void Acceptances::follow(const Call& call, const call::Record& record, const call::Dims& dims,
                         std::vector<Finding>& findings) {
  const std::vector<call::ChainRow> rows = call::chain_rows(record, dims);
  std::map<std::shared_ptr<const std::vector<std::int64_t>>, std::vector<Followed>> by_call;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const call::ChainRow& row = rows[i];
    Acceptance* now = row.request == call::kNoRequest ? nullptr : find(row.request);
    if (now == nullptr || now->by_states || !now->committed || !row.position) continue;
    const auto old = memory_.requests.find(row.request);
    const bool replays = record.mode == call::Mode::kMtp && *row.position == now->start &&
                         (old == memory_.requests.end() || old->second.base != now->start);
    if (replays && (!row.accepted || !row.parents.empty())) continue;
    const std::int64_t went = replays ? *row.accepted : *row.position - now->start;
    now->by_states = !replays;
    count(*now);
    std::vector<Followed>& followed = by_call[now->counts];
    followed.push_back({Followed::kRight, now->row, went});
    // The position says how many tokens its states have kept, not the draft acceptance.
    if (now->closed && old != memory_.requests.end() && old->second.kept != went) {
      old->second.kept.reset();
    }
    const bool said = !now->closed && old != memory_.requests.end() && old->second.kept;
    if (went == *now->committed) continue;
    const std::int64_t committed = std::exchange(*now->committed, went);
    if (said && !replays) continue;  // by the walk, which knows the counts
    followed.back().finding = findings.size();
    findings.push_back(departure(call, row, static_cast<std::int64_t>(i), Mistake::kNotCommitted,
                                 *row.position, words_of_counts(row.request, committed, went)));
  }
  for (const auto& [counts, followed] : by_call) name_counts(*counts, followed, findings);
}

}  // namespace goldenrule::chain
