// SPDX-License-Identifier: Apache-2.0
//
// Draft acceptance kernels that decide otherwise.
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "reference/drafts/search/words.hpp"
#include "reference/drafts/slice.hpp"
#include "reference/suites/unknown/decision_kernel.hpp"
#include "reference/suites/unknown/draw.hpp"

namespace goldenrule::suites {
namespace {

using drafts::Chosen;
using drafts::CountPoint;
using drafts::From;
using drafts::Stop;
using drafts::Test;
using drafts::TokenPoint;
using drafts::Weights;

std::string drawn_line(Draws& draws) {
  const bool greedy = draws.between(0, 3) == 0;
  std::string line = fmt::format(
      "op=draft_acceptance mode={} B={} S={} Z={} page_size=4 padding={} counts={} seed={}",
      greedy ? "greedy" : "rejection", draws.of<int>({16, 32, 64}), draws.of<int>({3, 5, 7}),
      draws.of<int>({64, 1025}), draws.of<std::string>({"none", "mixed"}),
      draws.of<std::string>({"all", "mixed"}), draws.between(1, 100000));
  if (greedy) return line + " pattern=A";
  line += fmt::format(" io=f32 pattern={}", draws.of<std::string>({"A", "E"}));
  if (draws.between(0, 3) == 0) line += " draft_kind=one_hot";
  if (draws.between(0, 2) == 0) line += " recover=race";
  return line;
}

// Number `size` - 1 included, the right one not.
template <class E>
E drawn_part(Draws& draws, std::size_t size) {
  return static_cast<E>(draws.between(1, static_cast<std::int64_t>(size) - 1));
}

CountPoint drawn_count(Draws& draws, bool greedy) {
  CountPoint p;
  const std::int64_t form = draws.between(0, 4);
  if (form == 0 || form == 4) {
    p.test = greedy ? draws.of<Test>({Test::kAlways, Test::kNever})
                    : drawn_part<Test>(draws, drafts::kTests);
  }
  if (form == 1 || (greedy && form == 2)) p.target = drawn_part<From>(draws, drafts::kFroms);
  if (!greedy && form == 2) p.uniform = drawn_part<From>(draws, drafts::kFroms);
  if (form == 3 || form == 4) p.stop = drawn_part<Stop>(draws, drafts::kStops);
  return p;
}

TokenPoint drawn_token(Draws& draws, bool greedy) {
  TokenPoint p;
  const std::int64_t form = greedy ? 1 : draws.between(0, 4);
  if (form == 0 || form == 4) p.weights = drawn_part<Weights>(draws, drafts::kWeights);
  if (form == 1) p.target = drawn_part<From>(draws, drafts::kFroms);
  if (form == 2) p.draft = drawn_part<From>(draws, drafts::kFroms);
  if (form == 3 || form == 4) p.chosen = drawn_part<Chosen>(draws, drafts::kChosen);
  return p;
}

// The same with one wrong part less, for each of them.
std::vector<CountPoint> without_a_part(const CountPoint& p) {
  std::vector<CountPoint> all(4, p);
  all[0].test = Test::kRight;
  all[1].target = From::kOwn;
  all[2].uniform = From::kOwn;
  all[3].stop = Stop::kFirstFailure;
  std::erase(all, p);
  return all;
}

std::vector<TokenPoint> without_a_part(const TokenPoint& p) {
  std::vector<TokenPoint> all(4, p);
  all[0].weights = Weights::kRight;
  all[1].target = From::kOwn;
  all[2].draft = From::kOwn;
  all[3].chosen = Chosen::kRight;
  std::erase(all, p);
  return all;
}

}  // namespace

Draw draw_decision(Draws& draws) {
  Draw draw = drawn_call(drafts::slice(), drawn_line(draws));
  const bool greedy = draw.call.mode == call::Mode::kGreedy;
  const std::int64_t which = draws.between(0, 2);  // counts, tokens, both
  const CountPoint count = which == 1 ? CountPoint() : drawn_count(draws, greedy);
  const TokenPoint token = which == 0 ? TokenPoint() : drawn_token(draws, greedy);
  draw.exact = decide(draw.call, count, token);
  draw.made = calls::stored(draw.call, *draw.contract, draw.exact);
  // Without one of its wrong parts the kernel must return something else.
  for (const CountPoint& less : without_a_part(count)) {
    draw.parts.push_back(decide(draw.call, less, token));
  }
  for (const TokenPoint& less : without_a_part(token)) {
    draw.parts.push_back(decide(draw.call, count, less));
  }
  if (count != CountPoint()) draw.words.push_back(words(count));
  if (token != TokenPoint()) draw.words.push_back(words(token));
  for (const std::string& w : draw.words) {
    draw.planted += (draw.planted.empty() ? "" : "; ") + w;
  }
  draw.partly = draw.words;
  return draw;
}

}  // namespace goldenrule::suites
