// SPDX-License-Identifier: Apache-2.0
//
// What the rows of a call start from: continuity, freshness, and the ledger where nothing else is
// stored.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "fixtures/call/text.hpp"
#include "reference/chain/walk.hpp"

namespace goldenrule::chain {

using verdict::Verdict;

std::string number(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", x);
  return text.data();
}

namespace {

// What was left, rounded to a type that is narrower than its pool.
std::string_view narrowed_to(const Stored& left, const Stored& start) {
  for (const call::DType type : {call::DType::kBF16, call::DType::kF16, call::DType::kF32}) {
    bool all = call::info(type).significand_bits < call::info(start.dtype).significand_bits;
    for (std::size_t i = 0; all && i < left.values.size(); ++i) {
      all = start.values[i] == call::round_to(type, left.values[i]);
    }
    if (all) return call::info(type).name;
  }
  return {};
}

}  // namespace

bool continues(const Stored& left, const Stored& start) {
  const bool narrower =
      call::info(start.dtype).significand_bits < call::info(left.dtype).significand_bits;
  for (std::size_t i = 0; i < left.values.size(); ++i) {
    const double x = start.values[i];
    const double y = narrower ? call::round_to(start.dtype, left.values[i]) : left.values[i];
    if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}

std::string words_of(const Fit& fit, std::size_t elements) {
  return " (" + std::to_string(fit.out) + " of " + call::numbered(elements, "element") +
         " beyond their budget, by " + number(fit.error) + " where " + number(fit.budget) +
         " is allowed)";
}

// What the last call left in a slot.
std::optional<Stored> CallWalk::held_in(std::int64_t slot) const {
  if (!memory_.pool || slot < 0 || slot >= memory_.pool->shape().front()) return std::nullopt;
  Stored held{.values = Block(layout_.size()), .dtype = memory_.pool->dtype()};
  const auto size = static_cast<std::int64_t>(layout_.size());
  memory_.pool->read(slot * size, size, held.values.data());
  return held;
}

// Who wrote the slot in which the request rested, if not itself; or what a call wrote for no
// request and was moved since.
std::optional<Writer> CallWalk::other_writer(const RowWalk& row) const {
  const auto request = memory_.requests.find(row.id.request);
  if (row.fresh || row.id.restored_from || request == memory_.requests.end()) return std::nullopt;
  const std::uint64_t digest = digest_of(row.start->values);
  const auto unowned =
      std::ranges::find(memory_.unowned, digest, &std::pair<std::int64_t, std::uint64_t>::second);
  if (unowned != memory_.unowned.end()) return Writer{.call = unowned->first};
  const auto writer = memory_.writers.find(row.slot);
  if (request->second.slot != row.slot || writer == memory_.writers.end()) return std::nullopt;
  const bool since = writer->second.call > request->second.call;
  if (!since || writer->second.request == row.id.request) return std::nullopt;
  return writer->second;
}

void CallWalk::compare_start(RowWalk& row) const {
  if (!row.start || row.taken || !row.ledger) return;
  if (row.expected && !row.fresh && continues(*row.expected, *row.start)) return;
  row.judged = judged(row.start->values, allowed_now(layout_, contract_, *row.ledger));
}

void CallWalk::judge_start(RowWalk& row) {
  if (!row.start || row.taken || !row.ledger) return;
  ++memory_.summary.judged;
  if (!row.judged) return;
  const Fit& found = row.judged->fit;
  const bool breaks = row.expected && !row.fresh;
  if (row.judged->vacuous) {
    ++memory_.summary.vacuous;
    if (!breaks) ++memory_.summary.blind_starts;
  }
  if (!breaks && found.passes()) return;
  row.departed = true;
  const Check check = row.fresh ? Check::kFreshness : breaks ? Check::kContinuity : Check::kLedger;
  if (!breaks && found.out == 0) {
    report(check, row, "the start state is within the oracle's own error only").verdict =
        Verdict::kMistrusted;
    return;
  }
  Name name;
  const std::string_view narrow =
      breaks ? narrowed_to(*row.expected, *row.start) : std::string_view();
  if (!narrow.empty()) {
    name = {Mistake::kNarrowed, "it is that state rounded to " + std::string(narrow), {}};
  } else if (const std::optional<Writer> other = other_writer(row)) {
    name = {Mistake::kOverwritten,
            "call " + std::to_string(other->call) + " wrote the slot for " +
                (other->request < 0 ? std::string("no request")
                                    : "request " + std::to_string(other->request)),
            {}};
  } else {
    const auto writer = memory_.writers.find(row.slot);
    const std::optional<Stored> held = held_in(row.slot);
    name = name_of(slice_, layout_, memory_.requests,
                   {.x = &row.start->values,
                    .request = row.id.restored_from.value_or(row.id.request),
                    .position = row.position,
                    .fresh = row.fresh,
                    .restored = row.id.restored_from.has_value(),
                    .tokens = tokens_.get(),
                    .row = row.row,
                    .slot_held = held ? &held->values : nullptr,
                    .slot_owner = writer == memory_.writers.end() ? -1 : writer->second.owner});
  }
  const std::string what = row.fresh ? "a new request starts from a state that is not zero"
                           : breaks  ? "the start state is not what the request's last call left"
                                     : "the start state is not that of the request's tokens";
  report(check, row,
         what + words_of(found, layout_.size()) + (name.text.empty() ? "" : ": " + name.text))
      .mistake = name.mistake;
  departures_.push_back(
      {findings_.size() - 1, static_cast<std::size_t>(&row - rows_.data()), std::move(name)});
  row.ledger = layout_.exact(row.start->values);
}

}  // namespace goldenrule::chain
