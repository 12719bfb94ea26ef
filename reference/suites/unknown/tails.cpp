// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <functional>

#include "fixtures/call/plan.hpp"
#include "reference/delta/mistakes/tail.hpp"
#include "reference/delta/slice.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {
namespace {

using delta::Tail;
using delta::TailAxis;
using delta::TailHolds;
using delta::TailOf;
using delta::TailRead;

struct AxisOfTail {
  TailAxis axis;
  const char* indices;
};
constexpr std::array kAxesOfTails{
    AxisOfTail{TailAxis::kKeys, "key channels"}, AxisOfTail{TailAxis::kValues, "value channels"},
    AxisOfTail{TailAxis::kTokens, "tokens"}, AxisOfTail{TailAxis::kHeads, "head"}};

bool is_left(const Tail& tail) {
  return tail.read == TailRead::kAll &&
         (tail.holds == TailHolds::kUnwritten || tail.holds == TailHolds::kZero);
}

// Widths of the generator, or others.
Tail drawn_tail(Draws& draws, bool others) {
  const AxisOfTail axis = kAxesOfTails[static_cast<std::size_t>(draws.between(0, 3))];
  Tail tail{.axis = axis.axis,
            .tile = others ? draws.of<int>({5, 6, 7, 9, 10, 11, 12, 20, 24, 28, 40})
                           : draws.of<int>({8, 16, 32})};
  const bool may_be_unread = tail.axis == TailAxis::kKeys || tail.axis == TailAxis::kValues;
  if (may_be_unread && draws.between(0, 2) == 0) {
    tail.read = TailRead::kNothing;
    tail.holds = TailHolds::kResults;
    return tail;
  }
  tail.holds = draws.of<TailHolds>(
      {TailHolds::kUnwritten, TailHolds::kZero, TailHolds::kFirst, TailHolds::kLast});
  if (tail.axis == TailAxis::kKeys) tail.of = TailOf::kStates;
  if (tail.axis == TailAxis::kTokens) tail.of = TailOf::kO;
  if (tail.axis == TailAxis::kValues || tail.axis == TailAxis::kHeads) {
    tail.of = draws.of<TailOf>({TailOf::kAll, TailOf::kO, TailOf::kStates});
  }
  return tail;
}

std::string tail_words(const Tail& tail) {
  constexpr std::array<const char*, 5> kHeld{"hold their results", "are not written", "hold 0",
                                             "hold the results of the first ones",
                                             "hold the results of the last one before them"};
  constexpr std::array<const char*, 3> kOutputs{"", " in o", " in the states"};
  const auto axis = kAxesOfTails[static_cast<std::size_t>(tail.axis)];
  return fmt::format("{} beyond the last full {} {}{}{}", axis.indices, tail.tile,
                     tail.read == TailRead::kAll ? "" : "are not read, ",
                     kHeld[static_cast<std::size_t>(tail.holds)],
                     kOutputs[static_cast<std::size_t>(tail.of)]);
}

// Where the results in the tail belong, as places are said.
std::vector<std::string> place_words(const call::Record& call, const Tail& tail) {
  const call::Dims d = call::validate(call);
  const auto words = [&](const char* index, const char* letter, std::int64_t extent) {
    const std::int64_t begin = delta::tail_begin(extent, tail.tile);
    if (tail.holds == TailHolds::kLast) return fmt::format("of {} {}", index, begin - 1);
    return begin + 1 == extent ? fmt::format("of {} 0", index)
                               : fmt::format("of {} {} - {}", index, letter, begin);
  };
  switch (tail.axis) {
    case TailAxis::kKeys:
      return {words("key channel", "k", d.K)};
    case TailAxis::kValues:
      return {words("value channel", "v", d.V)};
    case TailAxis::kHeads:
      return {words("head", "j", d.HV)};
    case TailAxis::kTokens:
    case TailAxis::kRows:
      break;
  }
  std::vector<std::string> all;
  for (const call::Sequence& s : call::make_plan(call, true).sequences) {
    const std::int64_t begin = delta::tail_begin(s.token_count, tail.tile);
    if (begin > 0 && begin < s.token_count) all.push_back(words("token", "t", s.token_count));
  }
  return all;
}

Draw drawn_with(Draws& draws, const std::function<Tail()>& drawn) {
  while (true) {
    const Tail tail = drawn();
    const std::int64_t H = draws.between(1, 2);
    const std::int64_t K = draws.of<int>({16, 24, 40, 44, 52}), V = draws.of<int>({16, 24, 40, 44});
    const std::int64_t HV = H * draws.between(1, 6);
    Draw draw = drawn_call(
        delta::slice(),
        fmt::format("op={} mode=prefill lens={},{} H={} HV={} K={} V={} gate=log h0=1 io=f32 "
                    "seed={}",
                    draws.of<std::string>({"gdn", "kda"}), draws.between(9, 60),
                    draws.between(9, 60), H, HV, K, V, draws.between(1, 100000)));
    if (!delta::has_tail(draw.call, tail.axis, tail.tile)) continue;
    draw.planted = tail_words(tail);
    plant(draw,
          [&](const calls::Kernel& right) { return delta::with_tail(draw.call, right, tail); });
    if (tail.holds == TailHolds::kFirst || tail.holds == TailHolds::kLast) {
      draw.words = place_words(draw.call, tail);
    }
    if (!is_left(tail)) return draw;
    const char* held = tail.holds == TailHolds::kZero ? "all zero" : "all NaN";
    if (tail.axis == TailAxis::kKeys) {
      draw.pattern = {fmt::format("k >= {}", delta::tail_begin(K, tail.tile)), held};
    } else if (tail.axis == TailAxis::kValues) {
      draw.pattern = {fmt::format("v >= {}", delta::tail_begin(V, tail.tile)), held};
    }
    return draw;
  }
}

}  // namespace

// Nobody has to enumerate widths to see what is left unwritten: those are any.
Draw draw_tail(Draws& draws) {
  return drawn_with(draws, [&] {
    while (true) {
      const bool others = draws.between(0, 1) == 0;
      const Tail tail = drawn_tail(draws, others);
      if (!others || is_left(tail)) return tail;
    }
  });
}

Draw draw_other_tail(Draws& draws) {
  return drawn_with(draws, [&] {
    while (true) {
      const Tail tail = drawn_tail(draws, true);
      if (!is_left(tail)) return tail;
    }
  });
}

}  // namespace goldenrule::suites
