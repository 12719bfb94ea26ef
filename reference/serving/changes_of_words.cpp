// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of what a server says of its rows: whose they are and how far these have come.
#include "reference/serving/changes.hpp"

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

// The first two rows of a decode that have requests.
static std::vector<Row*> first_two(Step& step) {
  std::vector<Row*> two;
  for (Row& row : step.rows) {
    if (row.request >= 0 && two.size() < 2) two.push_back(&row);
  }
  if (two.size() < 2) two.clear();
  return two;
}

bool ids_exchanged(Step& step, const Past&) {
  const std::vector<Row*> rows = first_two(step);
  if (step.mode != Mode::kDecode || rows.empty()) return false;
  const Said first = said_of(*rows[0]);
  rows[0]->said = said_of(*rows[1]);
  rows[1]->said = first;
  return true;
}

// Where the prompt of every second request is done, its state is lost: the slot holds what `from`
// says, and the request goes on as one that is said otherwise.
template <class F>
static bool lose_after_prompt(Step& step, const Past& past, Where from, F&& say) {
  if (step.mode == Mode::kPrefill) return false;
  return any_changed(step.rows, [&](Row& row) {
    if (row.request < 0 || row.request % 2 == 0) return false;
    const std::int64_t prompt = request_of(past, row.request).prompt;
    const auto ahead = past.reached.find(row.request);
    const bool first = ahead == past.reached.end() || ahead->second <= prompt;
    Said said = said_of(row);
    say(said, prompt);
    if (!first && row.restored_from == row.request) row.restored_from = said.request;
    row.said = said;
    if (first) step.moves.push_back({.from = {from, -1, 0}, .to = {Where::kSlot, -1, row.slot}});
    return true;
  });
}

bool new_id(Step& step, const Past& past) {
  const std::int64_t requests = past.scenario->requests;
  return lose_after_prompt(step, past, Where::kNoise,
                           [&](Said& said, std::int64_t) { said.request += requests; });
}

bool position_zero_again(Step& step, const Past& past) {
  if (past.scenario->preempt == cases::Preemption::kSnapshot) return false;
  return lose_after_prompt(step, past, Where::kNothing,
                           [](Said& said, std::int64_t prompt) { said.position -= prompt; });
}

// f(row) of the rows of an MTP call of chains, within what it can be.
template <class F>
static bool say_accepted(Step& step, F&& f) {
  if (step.mode != Mode::kMtp) return false;
  return any_changed(step.rows, [&](Row& row) {
    if (row.request < 0 || !row.parents.empty()) return false;
    const std::int64_t accepted = std::clamp<std::int64_t>(f(row), 0, row.count);
    row.said = Said{row.request, row.position, accepted};
    return accepted != row.accepted;
  });
}

bool counts_said_of_other_row(Step& step, const Past&) {
  if (!step.compacted) return false;
  std::vector<Row> live = step.rows;
  std::erase_if(live, [](const Row& row) { return row.request < 0; });
  return say_accepted(step, [&](const Row& row) {
    const auto here = std::ranges::find(live, row.request, &Row::request) - live.begin();
    return live[static_cast<std::size_t>((here + 1) % std::ssize(live))].accepted;
  });
}

bool counts_said_one_more(Step& step, const Past&) {
  return say_accepted(step, [](const Row& row) { return row.accepted + 1; });
}

bool counts_said_one_less(Step& step, const Past&) {
  return say_accepted(step, [](const Row& row) { return row.accepted - 1; });
}

// Further than anybody has come.
constexpr std::int64_t kAhead = 50;

bool restored_ahead(Step& step, const Past&) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [](Row& row) {
    if (row.request < 0 || row.restored_from >= 0) return false;
    row.restored_from = row.request;
    row.said = Said{row.request, row.position + kAhead, row.accepted};
    return true;
  });
}

bool restored_beyond(Step& step, const Past& past) {
  const std::int64_t most = past.scenario->prompt + past.scenario->output;
  return any_changed(step.rows, [&](Row& row) {
    if (row.restored_from < 0 || row.restored_from == row.request) return false;
    row.said = Said{row.request, row.position + most, row.accepted};
    return true;
  });
}

}  // namespace goldenrule::serving
