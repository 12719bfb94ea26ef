// SPDX-License-Identifier: Apache-2.0
//
// What a call leaves: the ledgers with which its requests go on, and the stored states beside them.
#include <algorithm>
#include <string>

#include "fixtures/call/text.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/chain/carry.hpp"
#include "reference/chain/trail.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {

using verdict::Verdict;

std::vector<CallWalk::LeftState> CallWalk::states_of(const Step& step, const RowWalk& row) const {
  std::vector<LeftState> states;
  if (!stored_ || record_.outputs.empty()) return states;
  for (const call::Snapshot& s : plan_->sequences[static_cast<std::size_t>(row.row)].snapshots) {
    std::optional<Stored> x = block("outputs", std::string(call::name_of(s.target)), s.block);
    if (!x) continue;
    LeftState state{.snapshot = &s, .stored = *std::move(x), .judged = {}};
    if (row.ledger) state.judged = judged(state.stored.values, step.allowed(row.row, s.after));
    states.push_back(std::move(state));
  }
  return states;
}

void CallWalk::judge_states(std::vector<LeftState> states, RowWalk& row, Request& request) {
  bool counted = false;
  for (LeftState& state : states) {
    const call::Snapshot& s = *state.snapshot;
    const std::string name(call::name_of(s.target));
    request.left.insert_or_assign(s.after, state.stored);
    if (!state.judged) continue;
    const Fit& found = state.judged->fit;
    if (!counted) ++memory_.summary.judged;
    counted = true;
    if (state.judged->vacuous) ++memory_.summary.vacuous;
    if (found.passes()) continue;
    Finding& finding =
        report(Check::kLedger, row,
               name +
                   (row.id.parents.empty() ? " after " + call::numbered(s.after, "token")
                                           : " of token " + std::to_string(s.after - 1)) +
                   " is not the state of the request" + words_of(found, layout_.size()));
    if (found.out == 0) {
      finding.verdict = Verdict::kMistrusted;
      finding.text = name + " is within the oracle's own error only, or has no budget";
      continue;
    }
    if (s.target == call::Target::kFinalState) finding.slot = s.block;
    wrong_.push_back({findings_.size() - 1, static_cast<std::size_t>(&row - rows_.data()),
                      std::move(state.stored.values),
                      row.position + call::depth_of(row.id.parents, s.after), s.after});
  }
}

// What its row makes of each request; its ledgers follow.
std::vector<Request> CallWalk::begin_requests() {
  const call::Tensor* told = record_.find_input("accepted_tokens");
  const bool mtp = record_.mode == call::Mode::kMtp;
  auto counts =
      std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(dims_.rows), -1);
  std::vector<Request> requests(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    RowWalk& row = rows_[i];
    Request& request = requests[i];
    const auto old = memory_.requests.find(row.id.request);
    if (old != memory_.requests.end()) {
      request.anchors = std::move(old->second.anchors);
      request.planes = old->second.mtp ? old->second.way() : std::move(old->second.planes);
      request.overflowed = old->second.overflowed && row.position > 0;
      request.strayed = old->second.strayed && !row.start && row.position > 0;
      request.been = std::move(old->second.been);
      request.anew = old->second.corrected || row.ledger != old->second.now ||
                     row.position != old->second.position();
      extend_trail(old->second, request);
    } else {
      request.anew = true;
    }
    if (row.id.restored_from && row.position > 0 && *row.id.restored_from != row.id.request) {
      request.origin = {*row.id.restored_from, row.position, call_.index};
    }
    request.call = call_.index;
    request.row = row.row;
    request.slot = row.slot;
    request.base = row.position;
    request.given = row.tokens;
    request.parents = row.id.parents;
    request.mtp = mtp;
    request.tokens = tokens_;
    request.contract = &contract_;
    request.counts = counts;
    if (!mtp) request.kept = row.tokens;
    if (mtp && row.id.accepted) request.kept = row.id.accepted;
    if (mtp && !request.kept && told != nullptr && request.parents.empty()) {
      request.kept = static_cast<std::int64_t>((*told)[row.row]);
    }
    if (request.kept) (*counts)[static_cast<std::size_t>(row.row)] = *request.kept;
    if (row.start) request.left.emplace(0, *row.start);
  }
  return requests;
}

void CallWalk::remember_requests(std::vector<Request> requests) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    RowWalk& row = rows_[i];
    auto& been = requests[i].been;
    for (auto& [after, stored] : requests[i].left) {
      // A start that is none of its states is a finding, and nobody else may go on from it.
      if (!requests[i].has_been(after) || (after == 0 && row.departed)) continue;
      const std::int64_t at = call::depth_of(requests[i].parents, after);
      const std::pair here{row.position + at, digest_of(stored.values)};
      if (been.empty() || been.back() != here) been.push_back(here);
      if (been.size() > kBeen) been.pop_front();
      const auto anchor = requests[i].anchors.find(row.position + at);
      if (anchor == requests[i].anchors.end()) continue;
      if (!anchor->second.stored) {
        memory_.anchors.emplace_back(row.id.request, row.position + at);
      }
      anchor->second.stored = stored;
    }
    std::int64_t& reached = memory_.reached[row.id.request];
    reached = std::max(reached,
                       row.position + call::depth_of(requests[i].parents, requests[i].furthest()));
    requests[i].before = std::move(row.ledger);
    memory_.keep(row.id.request, std::move(requests[i]));
  }
}

void CallWalk::name_states() {
  for (const WrongState& wrong : wrong_) {
    const RowWalk& row = rows_[wrong.row];
    Request& request = memory_.requests.at(row.id.request);
    const Name name = name_of(slice_, layout_, memory_.requests,
                              {.x = &wrong.x,
                               .request = row.id.request,
                               .position = wrong.position,
                               .after = wrong.after,
                               .earlier = memory_.tokens.get(),
                               .started = row.start ? &row.start->values : nullptr});
    Finding& finding = findings_[wrong.finding];
    finding.mistake = name.mistake;
    if (!name.text.empty()) finding.text += ": " + name.text;
    // It goes on from what is stored.
    const Stored* left = request.left_behind();
    if (left == nullptr) continue;
    request.now = layout_.exact(left->values);
    request.corrected = true;
  }
}

// Whether any of the states that the call leaves is there.
bool CallWalk::stores_states() const {
  return stored_ && std::ranges::any_of(call::EnumNames<call::Target>::kNames, [&](auto name) {
           return output(std::string(name)) != nullptr;
         });
}

// Where nothing is judged, the ledgers alone; false where these need a Step. Here and there the
// requests begin when nothing can be thrown any more.
bool CallWalk::carry(std::vector<Request>& requests) {
  if (stores_states() || (!stored_ && output("o") != nullptr)) return false;
  if (!Carry::serves(contract_, *tokens_)) return false;
  const Carry way(contract_, layout_, *tokens_, dims_.rows);
  requests = begin_requests();
  parallel::for_each_index(std::ssize(rows_), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const RowWalk& row = rows_[i];
    if (row.ledger && requests[i].kept) {
      requests[i].now = way.after(row.row, row.ledger, *requests[i].kept);
    }
  });
  return std::ranges::all_of(rows_, [&](const RowWalk& row) {
    const Request& request = requests[static_cast<std::size_t>(&row - rows_.data())];
    return !row.ledger || !request.kept || request.now;
  });
}

void CallWalk::step(std::vector<Request>& requests) {
  std::vector<Known> starts(static_cast<std::size_t>(dims_.rows));
  for (const RowWalk& row : rows_) starts[static_cast<std::size_t>(row.row)] = row.ledger;
  const Step step(slice_, contract_, layout_, *tokens_, starts);
  if (requests.empty()) requests = begin_requests();
  parallel::for_each_index(std::ssize(rows_), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const RowWalk& row = rows_[i];
    if (!row.ledger) return;
    if (requests[i].kept) requests[i].now = step.after(row.row, *requests[i].kept);
    const call::Sequence& s = step.plan().sequences[static_cast<std::size_t>(row.row)];
    std::vector<std::int64_t> kept = s.checkpoints;
    if (record_.mode == call::Mode::kPrefill) kept.push_back(row.tokens);
    for (const std::int64_t at : kept) {
      requests[i].anchors.insert_or_assign(row.position + at,
                                           Anchor{step.after(row.row, at), std::nullopt});
    }
  });
  std::vector<std::vector<LeftState>> left(rows_.size());
  parallel::for_each_index(std::ssize(rows_), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    left[i] = states_of(step, rows_[i]);
  });
  judge_outputs(step, requests);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    judge_states(std::move(left[i]), rows_[i], requests[i]);
    judge_range(step, rows_[i], requests[i]);
  }
}

void CallWalk::advance() {
  std::vector<Request> requests;
  if (!carry(requests)) step(requests);
  remember_requests(std::move(requests));
  name_states();
}

}  // namespace goldenrule::chain
