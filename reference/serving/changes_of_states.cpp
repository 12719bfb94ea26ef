// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of what becomes of a state on its way between places.
#include "reference/serving/changes.hpp"

#include <cmath>

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

// From elsewhere, or between slots.
static bool is_transport(const Move& move) {
  return is_restore(move) || (is_copy(move, Where::kSlot, Where::kSlot) && !move.replay);
}

template <class F>
static bool on_the_way(Step& step, F&& f) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_transport(move)) return false;
    f(move);
    return true;
  });
}

bool axes_exchanged(Step& step, const Past& past) {
  return past.scenario->K == past.scenario->V &&
         on_the_way(step, [](Move& move) { move.transposed = true; });
}

bool heads_of_first_half(Step& step, const Past& past) {
  return past.scenario->HV > 1 && on_the_way(step, [](Move& move) { move.first_half = true; });
}

bool state_scaled(Step& step, const Past& past) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(past.scenario->K));
  return on_the_way(step, [&](Move& move) { move.factor = scale; });
}

// Tokens that no call of the chain has had.
bool state_of_other_layer(Step& step, const Past& past) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_restore(move)) return false;
    const std::int64_t prompt = request_of(past, move.from.request).prompt;
    move.replay = Stretch{move.from.request, 0, prompt, true};
    move.from = {};
    return true;
  });
}

// By the gates of the token to come, which the call applies as well.
bool decayed_at_swap_in(Step& step, const Past&) {
  return any_changed(step.moves, [&](Move& move) {
    if (!is_copy(move, Where::kSwap, Where::kSlot)) return false;
    const auto row = std::ranges::find(step.rows, move.from.request, &Row::request);
    if (row == step.rows.end()) return false;
    move.replay = Stretch{row->request, row->position, 1};
    move.decay_only = true;
    return true;
  });
}

}  // namespace goldenrule::serving
