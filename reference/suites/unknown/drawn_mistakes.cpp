// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of the tables and of the generators together, or in some blocks only.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "fixtures/call/error.hpp"
#include "reference/attention/slice.hpp"
#include "reference/backward/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/suites/unknown/blocks.hpp"
#include "reference/suites/unknown/draw.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::suites {
namespace {

const calls::Mistake& one_of(std::span<const calls::Mistake> mistakes, Draws& draws) {
  return mistakes[static_cast<std::size_t>(draws.between(0, std::ssize(mistakes) - 1))];
}

// Of the table of an operation or, as often, of its generators.
const calls::Mistake& drawn_mistake(const verdict::Slice& slice, Draws& draws) {
  const bool generated = slice.generated != nullptr && draws.between(0, 1) == 0;
  return one_of(generated ? slice.generated() : slice.mistakes(), draws);
}

struct LineOfSlice {
  const verdict::Slice* slice;
  std::string line;
};

std::string delta_line(Draws& draws) {
  const std::string K = draws.of<std::string>({"24", "32", "40"});
  const std::string shape =
      fmt::format(" H=2 HV=4 K={} V={} seed={}", K, draws.of<std::string>({"20", "32"}),
                  draws.between(1, 100000));
  const std::string op = draws.of<std::string>({"gdn", "kda"});
  switch (draws.between(0, 2)) {
    case 0:
      return fmt::format("op={} mode=decode B=4 slots=permuted P=7", op) + shape;
    case 1:
      return fmt::format("op={} mode=mtp B=4 T=4 gate=log slots=permuted P=6", op) + shape;
    default:
      return fmt::format("op={} mode=prefill lens={},{},17,{} gate=log h0=1", op,
                         draws.between(30, 70), draws.between(30, 70), draws.between(60, 80)) +
             shape;
  }
}

LineOfSlice line_of_blocks(Draws& draws) {
  switch (draws.between(0, 5)) {
    case 0:
      return {&attention::slice(),
              fmt::format("op=attention mode=decode lens=4,4,4 ctx={},{},{} H=2 HV=4 K=64 V=32 "
                          "page=16 pattern=A seed={}",
                          draws.between(20, 70), draws.between(20, 70), draws.between(20, 70),
                          draws.between(1, 100000))};
    case 1:
      return {&backward::slice(),
              fmt::format("op=gdn_backward mode=prefill lens={},34,20 H=2 HV=4 K=32 V=24 h0=1 "
                          "dstate=1 pattern=A seed={}",
                          draws.between(20, 50), draws.between(1, 100000))};
    default:
      return {&delta::slice(), delta_line(draws)};
  }
}

// Some of the units, some of the heads, or one block.
BlockSet drawn_set(Draws& draws, std::int64_t units, std::int64_t heads) {
  const auto some = [&](std::int64_t of) {
    std::set<std::int64_t> chosen;
    for (std::int64_t n = draws.between(1, std::max<std::int64_t>(1, of / 2)); n > 0; --n) {
      chosen.insert(draws.between(0, of - 1));
    }
    return chosen;
  };
  const std::int64_t form = draws.between(0, 2);
  const auto in_units = some(units), in_heads = some(heads);
  return [=](std::int64_t unit, std::int64_t head) {
    return (form == 1 || in_units.contains(unit)) && (form == 0 || in_heads.contains(head));
  };
}

// The call of the planter, of which no outputs are made yet.
Draw draw_of(const BlockPlanter& planter, const std::string& line) {
  Draw draw = drawn_call(planter.slice, line);
  draw.made = planter.honest;
  draw.exact = verdict::exact_outputs(planter.slice, planter.call);
  return draw;
}

struct InBlocks {
  const calls::Mistake* mistake;
  BlockSet set;
  std::string where;
  call::TensorMap made, exact;
};

// Nothing where the mistake cannot be made, or does not show in the set and outside of it.
std::optional<InBlocks> in_blocks(const BlockPlanter& planter, const calls::Mistake& mistake,
                                  BlockSet set) {
  auto made = planter.mistaken(mistake);
  if (!made) return std::nullopt;
  auto exact = planter.mistaken(mistake, verdict::exact_kernel(planter.slice));
  if (!exact) return std::nullopt;
  std::string where = planter.words(planter.failing(*made), set);
  if (where.empty()) return std::nullopt;
  return InBlocks{&mistake, std::move(set), std::move(where), std::move(*made), std::move(*exact)};
}

void add_in_blocks(const BlockPlanter& planter, const InBlocks& in, Draw& draw) {
  planter.plant(draw.made, in.made, in.set);
  planter.plant(draw.exact, in.exact, in.set);
  draw.planted +=
      fmt::format("{}{} in {}", draw.planted.empty() ? "" : " + ", in.mistake->name, in.where);
  draw.where.push_back(in.where);
  draw.sets.push_back(in.set);
}

// How often a mistake is drawn for a call before another call is.
constexpr int kTries = 20;

std::int64_t units_of(const BlockPlanter& planter) {
  return std::ssize(call::make_plan(planter.call, true).sequences);
}

}  // namespace

Draw draw_blocks(Draws& draws) {
  while (true) {
    const LineOfSlice of = line_of_blocks(draws);
    const BlockPlanter planter(*of.slice, of.line);
    const std::int64_t units = of.slice == &delta::slice() ? units_of(planter) : 3;
    for (int i = 0; i < kTries; ++i) {
      const calls::Mistake& mistake = drawn_mistake(*of.slice, draws);
      const auto in = in_blocks(planter, mistake, drawn_set(draws, units, 4));
      if (!in) continue;
      Draw draw = draw_of(planter, of.line);
      add_in_blocks(planter, *in, draw);
      return draw;
    }
  }
}

Draw draw_pair_in_blocks(Draws& draws) {
  while (true) {
    const std::string line = delta_line(draws);
    const BlockPlanter planter(delta::slice(), line);
    for (int i = 0; i < kTries; ++i) {
      const std::int64_t first = draws.between(0, 3), second = (first + draws.between(1, 3)) % 4;
      const std::int64_t unit = draws.between(0, units_of(planter) - 1);
      const auto a = in_blocks(planter, drawn_mistake(delta::slice(), draws),
                               [first](auto, auto head) { return head == first; });
      if (!a) continue;
      const auto b =
          in_blocks(planter, drawn_mistake(delta::slice(), draws),
                    [unit, second](auto n, auto head) { return n == unit && head == second; });
      if (!b || a->mistake->name == b->mistake->name) continue;
      Draw draw = draw_of(planter, line);
      draw.parts = {draw.exact, draw.exact};
      planter.plant(draw.parts[0], a->exact, a->set);
      planter.plant(draw.parts[1], b->exact, b->set);
      add_in_blocks(planter, *a, draw);
      add_in_blocks(planter, *b, draw);
      return draw;
    }
  }
}

// A mistake, and around it one that runs what it finds.
Draw draw_pair(Draws& draws) {
  while (true) {
    Draw draw = drawn_call(delta::slice(), delta_line(draws));
    for (int i = 0; i < kTries; ++i) {
      const calls::Mistake& outer = drawn_mistake(delta::slice(), draws);
      const calls::Mistake& inner = drawn_mistake(delta::slice(), draws);
      if (outer.name == inner.name || !outer.applies(draw.call) || !inner.applies(draw.call)) {
        continue;
      }
      bool ran = false;
      const auto both = [&](const calls::Kernel& right) {
        return outer.commit(draw.call, [&](const call::Record& changed) {
          ran = true;
          return inner.applies(changed) ? inner.commit(changed, right) : right(changed);
        });
      };
      const auto alone = [&](const calls::Mistake& m) {
        return m.commit(draw.call, verdict::exact_kernel(delta::slice()));
      };
      try {
        plant(draw, both);
        if (!ran) continue;
        draw.parts = {alone(outer), alone(inner)};
      } catch (const Error&) {  // no call once the outer mistake has changed it
        continue;
      }
      draw.planted = fmt::format("{} + {}", outer.name, inner.name);
      return draw;
    }
  }
}

}  // namespace goldenrule::suites
