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

std::vector<Known> ledgers_at(const verdict::Slice& slice, const Layout& layout,
                              const Requests& requests, std::int64_t id, std::int64_t position,
                              std::int64_t until) {
  std::vector<Known> ledgers;
  const auto found = requests.find(id);
  if (found == requests.end()) return ledgers;
  const std::vector<Leg> legs = legs_of(found->second);
  for (std::size_t i = legs.size(); i-- > 0 && ledgers.size() < kMostLedgers;) {
    if (legs[i].call >= until || !covers(legs[i], position)) continue;
    Known ledger = along(slice, layout, std::span(legs).first(i + 1), position);
    if (ledger == nullptr) return ledgers;
    ledgers.push_back(std::move(ledger));
    while (!legs[i].anew && i > 0) --i;  // the rest of this life leads to the same
  }
  if (!ledgers.empty()) return ledgers;
  // Before it was taken from another request, it was that one.
  const std::optional<Origin>& origin = found->second.origin;
  if (!origin || origin->call >= until || position > origin->position) return ledgers;
  return ledgers_at(slice, layout, requests, origin->request, position, origin->call);
}

}  // namespace goldenrule::chain
