// SPDX-License-Identifier: Apache-2.0
//
// `goldenrule mutate --unknown`: how often an explanation is right of mistakes that no table has.
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "fixtures/call/text.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/suites/unknown/judge.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

using suites::Answer;

struct NumberedDraw {
  std::int64_t number = 0;
  std::string line, planted, said;
  Answer answer = Answer::kHidden;
};

struct TallyOfDraws {
  std::array<int, 4> of{};  // by answer
  [[nodiscard]] int count(Answer a) const { return of[static_cast<std::size_t>(a)]; }
  [[nodiscard]] int shown() const {
    return count(Answer::kRight) + count(Answer::kWrong) + count(Answer::kUndecided);
  }
  [[nodiscard]] double percent(Answer a) const {
    return shown() == 0 ? 0.0 : 100.0 * count(a) / shown();
  }
};

void print_tally(std::string_view kind, const TallyOfDraws& tally) {
  fmt::print("{:<18} {:>6} {:>6} {:>6} {:>10} {:>7}\n", kind, tally.shown(),
             tally.count(Answer::kRight), tally.count(Answer::kWrong),
             tally.count(Answer::kUndecided), tally.count(Answer::kHidden));
}

constexpr std::array<const char*, 4> kAnswerWords{"hidden by the budgets", "right", "WRONG",
                                                  "undecided"};

void print_draw(std::uint64_t seed, const NumberedDraw& draw) {
  fmt::print("mutate --unknown --seed {} --draw {}: {}\n    in {}\n    planted: {}\n    said: {}\n",
             seed, draw.number, kAnswerWords[static_cast<std::size_t>(draw.answer)], draw.line,
             draw.planted, draw.said.empty() ? "nothing" : draw.said);
}

NumberedDraw numbered(std::int64_t number, const suites::Draw& draw,
                      const suites::AnsweredDraw& result) {
  return {number, draw.line, draw.planted, result.said, result.answer};
}

void write_capture(const suites::Draw& draw, const std::string& path) {
  schema::Fixture fixture;
  fixture.record = draw.call;
  fixture.record.outputs = draw.made;
  fixture.record.contract = draw.contract->name;
  schema::write_fixture(path, fixture);
}

// With all that is said of it.
int show_one(const UnknownOptions& given) {
  const std::uint64_t seed = given.seed;
  const std::int64_t number = *given.draw;
  const suites::Draw draw = suites::draw_unknown(seed, number);
  if (!given.out.empty()) write_capture(draw, given.out);
  const suites::AnsweredDraw result = suites::answered(draw);
  print_draw(seed, numbered(number, draw, result));
  fmt::print("    pattern: {}\n", result.diagnosis.pattern);
  for (const std::string& found : result.diagnosis.found) fmt::print("    found: {}\n", found);
  for (const explain::Explanation& e : result.diagnosis.explanations) {
    fmt::print("    {} {}: {} not reproduced, worst {:.3g} times, {:.0f} % of the error\n",
               e.explains ? "explained by" : "nearest:", e.name_and_place(),
               call::numbered(e.failing, "element"), e.residual_ratio, 100.0 * e.accounted);
  }
  return result.answer == Answer::kWrong ? 1 : 0;
}

}  // namespace

int mutate_unknown(const UnknownOptions& given) {
  if (given.draw) return show_one(given);
  std::vector<NumberedDraw> draws(static_cast<std::size_t>(given.draws));
  Progress progress(1);
  progress.show(0, "draws");
  parallel::for_each_index(given.draws, [&](std::int64_t i) {
    const suites::Draw draw = suites::draw_unknown(given.seed, i);
    draws[static_cast<std::size_t>(i)] = numbered(i, draw, suites::answered(draw));
  });
  progress.clear();
  const auto kinds = suites::unknown_kinds();
  std::vector<TallyOfDraws> tallies(kinds.size());
  TallyOfDraws all, beyond;
  for (const NumberedDraw& draw : draws) {
    const auto answer = static_cast<std::size_t>(draw.answer);
    ++tallies[static_cast<std::size_t>(draw.number) % kinds.size()].of[answer];
    ++(suites::kind_of(draw.number).is_beyond ? beyond : all).of[answer];
    if (draw.answer != Answer::kRight && draw.answer != Answer::kHidden) {
      print_draw(given.seed, draw);
    }
  }
  fmt::print("{:<18} {:>6} {:>6} {:>6} {:>10} {:>7}\n", "drawn", "seen", "right", "wrong",
             "undecided", "hidden");
  for (const bool is_beyond : {false, true}) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i].is_beyond == is_beyond) print_tally(kinds[i].name, tallies[i]);
    }
    print_tally(is_beyond ? "no search has them" : "all", is_beyond ? beyond : all);
  }
  fmt::print(
      "seed {}, {}, of the {} in \"all\": right first in {:.1f} %, wrong in {:.1f} %, undecided "
      "in {:.1f} %\n",
      given.seed, call::numbered(draws.size(), "draw"), all.shown(), all.percent(Answer::kRight),
      all.percent(Answer::kWrong), all.percent(Answer::kUndecided));
  return all.count(Answer::kWrong) + beyond.count(Answer::kWrong) > 0 ? 1 : 0;
}

}  // namespace goldenrule::tools
