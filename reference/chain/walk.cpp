// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/walk.hpp"

#include <algorithm>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::chain {
namespace {

using verdict::Verdict;

std::int64_t slot_of(const call::Record& record, std::int64_t row) {
  if (const call::Tensor* slots = record.find_input("state_indices")) {
    return static_cast<std::int64_t>((*slots)[row]);
  }
  const call::Tensor* slots = record.find_input("ssm_state_indices");
  if (slots == nullptr) return row;
  const std::int64_t steps = slots->shape().back();
  const call::Tensor* accepted = record.find_input("num_accepted_tokens");
  const auto last = accepted == nullptr ? 1 : static_cast<std::int64_t>((*accepted)[row]);
  if (last < 1 || last > steps) return -1;
  return static_cast<std::int64_t>((*slots)[row * steps + last - 1]);
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
      tokens_(memory.hold(tokens_of(record))) {
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

// Where the states are stored, the plan has asked for this already.
void CallWalk::check_counts(std::span<const std::int64_t> bounds) const {
  const auto accepted = call::integers(record_, "accepted_tokens");
  for (std::size_t i = 0; accepted && i < accepted->size(); ++i) {
    call::check_value(*accepted, "accepted_tokens", i, 0, bounds[i + 1] - bounds[i]);
  }
  const auto steps = record_.find_input("ssm_state_indices");
  const auto started = call::integers(record_, "num_accepted_tokens");
  if (started && steps != nullptr) {
    call::check_range(*started, "num_accepted_tokens", 1, steps->shape().back());
  }
}

void CallWalk::read_rows() {
  const std::vector<call::ChainRow> ids = call::chain_rows(record_, dims_);
  const std::vector<std::int64_t> bounds = call::token_bounds(record_, dims_);
  if (!stored_) check_counts(bounds);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    RowWalk row;
    row.id = ids[i];
    row.row = static_cast<std::int64_t>(i);
    row.slot = slot_of(record_, row.row);
    row.tokens = bounds[i + 1] - bounds[i];
    if (row.id.request == call::kNoRequest) continue;
    if (row.slot == record_.convention.pad_slot) {
      report(Check::kInput, row,
             "the row of a request has the slot of padding (pad_slot), so no kernel reads it: "
             "expected a slot of its own, or request -1")
          .verdict = Verdict::kError;
      continue;
    }
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
  if (!stored_ || pool == nullptr) return;
  memory_.pool = *pool;
  for (const auto& [slot, writer] : memory_.writers) {
    if (writer.request != call::kNoRequest || writer.call != call_.index) continue;
    if (const auto held = held_in(slot); held && !is_zero(held->values)) {
      memory_.unowned.emplace_back(call_.index, digest_of(held->values));
    }
    if (memory_.unowned.size() > kBeen) memory_.unowned.pop_front();
  }
}

std::vector<Finding> CallWalk::run() {
  read_rows();
  judge_rule();
  judge_parameters();
  for (RowWalk& row : rows_) enter(row);
  parallel::for_each_index(std::ssize(rows_), [&](std::int64_t i) {
    compare_start(rows_[static_cast<std::size_t>(i)]);
  });
  for (RowWalk& row : rows_) judge_start(row);
  name_departures();
  advance();
  judge_frame();
  remember_pool();
  memory_.tokens = tokens_;
  memory_.trim(call_.index);
  return std::move(findings_);
}

}  // namespace goldenrule::chain
