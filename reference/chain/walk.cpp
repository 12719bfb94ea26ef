// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/walk.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

constexpr std::uint64_t kNoiseSeed = 0x6c65646765720000U;

std::int64_t slot_of(const call::Record& record, const call::Dims& dims, std::int64_t row) {
  if (const call::Tensor* slots = record.find_input("state_indices")) {
    return static_cast<std::int64_t>((*slots)[row]);
  }
  const call::Tensor* slots = record.find_input("ssm_state_indices");
  if (slots == nullptr) return row;
  const call::Tensor* accepted = record.find_input("num_accepted_tokens");
  const auto last = accepted == nullptr ? 1 : static_cast<std::int64_t>((*accepted)[row]);
  if (last < 1 || last > dims.T) return -1;
  return static_cast<std::int64_t>((*slots)[row * dims.T + last - 1]);
}

}  // namespace

CallWalk::CallWalk(const verdict::Slice& slice, Memory& memory, const Call& call,
                   const call::Record& record, const call::Dims& dims,
                   const contract::Contract& contract)
    : slice_(slice),
      memory_(memory),
      call_(call),
      record_(record),
      dims_(dims),
      contract_(contract),
      layout_(*memory.layout),
      stored_(has_states(record)),
      tokens_(std::make_shared<call::Record>(tokens_of(record))) {
  if (stored_) plan_ = call::make_plan(record, true);
}

Finding& CallWalk::report(Check check, const RowWalk& row, std::string text) {
  findings_.push_back({.check = check,
                       .verdict = Verdict::kOutOfBudget,
                       .mistake = Mistake::kNone,
                       .call = call_.index,
                       .request = row.id.request,
                       .slot = row.slot,
                       .row = row.row,
                       .position = row.position,
                       .text = std::move(text)});
  return findings_.back();
}

const call::Tensor* CallWalk::output(const std::string& name) const {
  const auto found = record_.outputs.find(name);
  return found == record_.outputs.end() ? nullptr : &found->second;
}

std::optional<Stored> CallWalk::block(const char* group, const std::string& name,
                                      std::int64_t index) const {
  const call::Tensor* tensor =
      group == std::string_view("inputs") ? record_.find_input(name) : output(name);
  if (tensor == nullptr) return std::nullopt;
  Stored stored{.values = Block(layout_.size()), .dtype = tensor->dtype()};
  const auto size = static_cast<std::int64_t>(layout_.size());
  tensor->read(index * size, size, stored.values.data());
  return stored;
}

void CallWalk::read_rows() {
  const std::vector<call::ChainRow> ids = call::chain_rows(record_, dims_);
  const bool prefill = record_.mode == call::Mode::kPrefill;
  const std::vector<std::int64_t> bounds =
      prefill ? record_.inputs.at("cu_seqlens").to_integers() : std::vector<std::int64_t>();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    RowWalk row;
    row.id = ids[i];
    row.row = static_cast<std::int64_t>(i);
    row.slot = slot_of(record_, dims_, row.row);
    row.tokens = prefill ? bounds[i + 1] - bounds[i] : dims_.T;
    if (row.id.request == call::kNoRequest || row.slot == record_.convention.pad_slot) continue;
    memory_.summary.states += 2;
    memory_.summary.tokens += row.tokens;
    if (stored_) {
      const std::int64_t start = plan_->sequences[i].start_block;
      row.start = start >= 0 ? block("inputs", "initial_state", start)
                             : Stored{.values = Block(layout_.size(), 0.0), .dtype = layout_.pool};
    }
    rows_.push_back(std::move(row));
  }
}

void CallWalk::judge_states(const Step& step, RowWalk& row, Request& request) {
  if (!stored_ || record_.outputs.empty()) return;
  const call::Sequence& sequence = plan_->sequences[static_cast<std::size_t>(row.row)];
  bool counted = false;
  for (const call::Snapshot& s : sequence.snapshots) {
    const std::string name(call::name_of(s.target));
    std::optional<Stored> x = block("outputs", name, s.block);
    if (!x) continue;
    request.left.insert_or_assign(s.after, *x);
    if (!row.ledger) continue;
    const Allowed allowed = step.allowed(row.row, s.after);
    const Fit found = fit(x->values, allowed);
    if (!counted) ++memory_.summary.judged;
    counted = true;
    if (allowed.vacuous) ++memory_.summary.vacuous;
    if (found.passes()) continue;
    Finding& finding =
        report(Check::kLedger, row,
               name + " after " + std::to_string(s.after) +
                   " tokens is not the state of the request" + words_of(found, layout_.size()));
    if (found.out == 0) {
      finding.verdict = Verdict::kMistrusted;
      finding.text = name + " is within the oracle's own error only, or has no budget";
      continue;
    }
    if (s.target == call::Target::kFinalState) finding.slot = s.block;
    wrong_.push_back({findings_.size() - 1, static_cast<std::size_t>(&row - rows_.data()),
                      std::move(x->values), row.position + s.after});
  }
}

// What its row makes of each request; its ledgers follow.
std::vector<Request> CallWalk::begin_requests() {
  const call::Tensor* told = record_.find_input("accepted_tokens");
  const bool verify = record_.mode == call::Mode::kMtp;
  auto counts =
      std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(dims_.rows), -1);
  std::vector<Request> requests(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    RowWalk& row = rows_[i];
    Request& request = requests[i];
    const auto old = memory_.requests.find(row.id.request);
    if (old != memory_.requests.end()) {
      request.anchors = std::move(old->second.anchors);
      request.planes = old->second.verify ? old->second.way() : std::move(old->second.planes);
    }
    request.call = call_.index;
    request.row = row.row;
    request.slot = row.slot;
    request.base = row.position;
    request.given = row.tokens;
    request.verify = verify;
    request.tokens = tokens_;
    request.contract = &contract_;
    request.counts = counts;
    if (!verify) request.kept = row.tokens;
    if (verify && row.id.accepted) request.kept = row.id.accepted;
    if (verify && !request.kept && told != nullptr) {
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
    for (auto& [at, stored] : requests[i].left) {
      const auto anchor = requests[i].anchors.find(row.position + at);
      if (anchor == requests[i].anchors.end()) continue;
      if (!anchor->second.stored) {
        memory_.anchors.emplace_back(row.id.request, row.position + at);
      }
      anchor->second.stored = stored;
    }
    requests[i].before = std::move(row.ledger);
    memory_.requests.insert_or_assign(row.id.request, std::move(requests[i]));
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
                               .after_call = true,
                               .started = row.start ? &row.start->values : nullptr});
    Finding& finding = findings_[wrong.finding];
    finding.mistake = name.mistake;
    if (!name.text.empty()) finding.text += ": " + name.text;
    // It goes on from what is stored.
    if (const Stored* left = request.left_behind()) request.now = layout_.exact(left->values);
  }
}

void CallWalk::advance() {
  std::vector<const Ledger*> starts(static_cast<std::size_t>(dims_.rows), nullptr);
  for (const RowWalk& row : rows_) {
    if (row.ledger) starts[static_cast<std::size_t>(row.row)] = &*row.ledger;
  }
  const Step step(slice_, contract_, layout_, *tokens_, starts,
                  kNoiseSeed + (static_cast<std::uint64_t>(call_.index) << 20U));
  std::vector<Request> requests = begin_requests();
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
  for (std::size_t i = 0; i < rows_.size(); ++i) judge_states(step, rows_[i], requests[i]);
  remember_requests(std::move(requests));
  name_states();
}

void CallWalk::judge_frame() {
  const call::Tensor* before = record_.find_input("initial_state");
  const call::Tensor* after = output("final_state");
  if (!stored_ || before == nullptr || after == nullptr) return;
  std::vector<bool> named(static_cast<std::size_t>(dims_.slots), false);
  for (const call::Sequence& sequence : plan_->sequences) {
    for (const call::Snapshot& s : sequence.snapshots) {
      if (s.target == call::Target::kFinalState) named[static_cast<std::size_t>(s.block)] = true;
    }
  }
  for (std::int64_t slot = 0; slot < dims_.slots; ++slot) {
    if (named[static_cast<std::size_t>(slot)]) continue;
    ++memory_.summary.slots_compared;
    const std::optional<Stored> x = block("inputs", "initial_state", slot);
    const std::optional<Stored> y = block("outputs", "final_state", slot);
    if (continues(*x, *y)) continue;
    Writer& writer = memory_.writers[slot];
    writer.request = call::kNoRequest;
    writer.call = call_.index;
    RowWalk none;
    none.row = -1;
    none.slot = slot;
    none.id.request = writer.owner;
    report(Check::kFrame, none, "the call changed a slot that it does not name").mistake =
        Mistake::kOverwritten;
  }
}

void CallWalk::remember_pool() {
  const auto own = [&](std::int64_t row, std::int64_t slot) {
    const auto found = std::ranges::find(rows_, row, &RowWalk::row);
    Writer& writer = memory_.writers[slot];
    writer.request = found == rows_.end() ? call::kNoRequest : found->id.request;
    writer.call = call_.index;
    if (writer.request != call::kNoRequest) writer.owner = writer.request;
  };
  if (plan_) {
    for (std::size_t i = 0; i < plan_->sequences.size(); ++i) {
      for (const call::Snapshot& s : plan_->sequences[i].snapshots) {
        if (s.target == call::Target::kFinalState) own(static_cast<std::int64_t>(i), s.block);
      }
    }
  } else if (record_.convention.disable_state_update == 0) {
    for (const RowWalk& row : rows_) own(row.row, row.slot);
  }
  const call::Tensor* pool = output("final_state");
  if (stored_ && pool != nullptr) memory_.pool = *pool;
}

std::vector<Finding> CallWalk::run() {
  read_rows();
  for (RowWalk& row : rows_) {
    enter(row);
    judge_start(row);
  }
  name_departures();
  advance();
  judge_frame();
  remember_pool();
  memory_.trim(call_.index);
  return std::move(findings_);
}

}  // namespace goldenrule::chain
