// SPDX-License-Identifier: Apache-2.0
#include "reference/chain/trail.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "reference/chain/carry.hpp"
#include "reference/chain/step.hpp"

namespace goldenrule::chain {
namespace {

std::optional<Leg> last_leg(const Request& request) {
  if (request.tokens == nullptr) return std::nullopt;
  return Leg{.way = {request.before, request.base, request.row, request.furthest(), request.tokens,
                     request.contract, request.parents},
             .call = request.call,
             .anew = request.anew || request.trail.empty()};
}

// The state of the way at a position behind its base.
std::int64_t state_at(const Way& way, std::int64_t position) {
  const std::vector<std::int64_t> path = call::path_to(way.parents, way.kept);
  return path[static_cast<std::size_t>(position - way.base - 1)] + 1;
}

// The ledger after state `after` of a leg that begins with `start`.
Known through(const verdict::Slice& slice, const Layout& layout, const Way& way, const Known& start,
              std::int64_t after) {
  if (after == 0) return start;
  const std::array offsets{after};
  const call::Record tokens = one_row(*way.tokens, way.row, offsets);
  if (Carry::serves(*way.contract, tokens)) {
    if (Known ledger = Carry(*way.contract, layout, tokens, 1).after(0, start, after)) {
      return ledger;
    }
  }
  const Step step(slice, *way.contract, layout, tokens, {&start, 1});
  return step.after(0, after);
}

bool covers(const Leg& leg, std::int64_t position) {
  const Way& way = leg.way;
  if (position == way.base) return leg.anew;
  return way.base < position && position <= way.position(way.kept);
}

// Through the calls from the last one that begins anew to the last of `legs`.
Known along(const verdict::Slice& slice, const Layout& layout, std::span<const Leg> legs,
            std::int64_t position) {
  std::size_t first = legs.size() - 1;
  while (!legs[first].anew) {
    if (first == 0) return nullptr;
    --first;
  }
  Known ledger = legs[first].way.before;
  for (const Leg& leg : legs.subspan(first)) {
    if (!ledger) return nullptr;
    const bool is_last = &leg == &legs.back();
    const bool at_base = is_last && position == leg.way.base;
    ledger = through(slice, layout, leg.way, ledger,
                     at_base   ? 0
                     : is_last ? state_at(leg.way, position)
                               : leg.way.kept);
  }
  return ledger;
}

// The calls of a request, and of each of its lives the one that has led to a position, the latest
// first.
struct Lives {
  std::vector<Leg> legs = {};
  std::vector<std::size_t> ends = {};

  [[nodiscard]] Known ledger(const verdict::Slice& slice, const Layout& layout, std::size_t life,
                             std::int64_t position) const {
    return along(slice, layout, std::span(legs).first(ends[life] + 1), position);
  }
};

Lives lives_at(const Requests& requests, std::int64_t id, std::int64_t position,
               std::int64_t until) {
  Lives lives;
  const auto found = requests.find(id);
  if (found == requests.end()) return lives;
  lives.legs = legs_of(found->second);
  for (std::size_t i = lives.legs.size(); i-- > 0 && lives.ends.size() < kMostLedgers;) {
    if (lives.legs[i].call >= until || !covers(lives.legs[i], position)) continue;
    lives.ends.push_back(i);
    while (!lives.legs[i].anew && i > 0) --i;  // the rest of this life leads to the same
  }
  if (!lives.ends.empty()) return lives;
  // Before it was taken from another request, it was that one.
  const std::optional<Origin>& origin = found->second.origin;
  if (!origin || origin->call >= until || position > origin->position) return lives;
  return lives_at(requests, origin->request, position, origin->call);
}

}  // namespace

std::vector<Leg> legs_of(const Request& request) {
  std::vector<Leg> legs(request.trail.begin(), request.trail.end());
  if (std::optional<Leg> last = last_leg(request)) legs.push_back(*std::move(last));
  return legs;
}

void extend_trail(Request& request, Request& next) {
  std::optional<Leg> last = last_leg(request);
  next.origin = request.origin;
  next.trail = std::move(request.trail);
  if (!last) return;
  if (!last->anew) last->way.before.reset();
  next.trail.push_back(*std::move(last));
}

std::uint64_t bytes_of_trail(const Layout& layout, const Request& request) {
  const auto ledgers = std::ranges::count_if(
      request.trail, [](const Leg& leg) { return leg.way.before != nullptr; });
  const std::uint64_t each = (1 + static_cast<std::uint64_t>(layout.runs)) * layout.size();
  return request.trail.size() * sizeof(Leg) +
         static_cast<std::uint64_t>(ledgers) * each * sizeof(double);
}

Known ledger_at(const verdict::Slice& slice, const Layout& layout, const Requests& requests,
                std::int64_t id, std::int64_t position, std::int64_t until) {
  const Lives lives = lives_at(requests, id, position, until);
  return lives.ends.empty() ? nullptr : lives.ledger(slice, layout, 0, position);
}

std::vector<Known> former_ledgers_at(const verdict::Slice& slice, const Layout& layout,
                                     const Requests& requests, std::int64_t id,
                                     std::int64_t position, std::int64_t until) {
  std::vector<Known> former;
  const Lives lives = lives_at(requests, id, position, until);
  if (lives.ends.size() < 2) return former;
  const Known present = lives.ledger(slice, layout, 0, position);
  for (std::size_t i = 1; present && i < lives.ends.size(); ++i) {
    Known ledger = lives.ledger(slice, layout, i, position);
    if (!ledger) break;
    if (ledger->state != present->state) former.push_back(std::move(ledger));
  }
  return former;
}

}  // namespace goldenrule::chain
