// SPDX-License-Identifier: Apache-2.0
//
// What counts the answers to drawn mistakes: a draw is the same whenever it is drawn, and an answer
// is right, wrong or none by meaning, not by its name.
#include <doctest/doctest.h>

#include <algorithm>

#include "reference/suites/unknown/judge.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using suites::Answer;
using suites::Draw;

verdict::Judgement judged_draw(const Draw& draw) {
  Record record = draw.call;
  record.outputs = draw.made;
  return verdict::judgement(*draw.slice, record,
                            {.contract = *draw.contract, .precision = scalar::Precision::kDouble});
}

// scale_missing as a draw.
Draw scale_draw() {
  Draw draw = suites::drawn_call(delta::slice(), kDecode);
  suites::plant(draw, [&](const Kernel& right) { return kScaleMissing.commit(draw.call, right); });
  return draw;
}

Diagnosis naming(const std::string& name) {
  Diagnosis d;
  d.pattern = "o: everywhere";
  Explanation& e = d.explanations.emplace_back();
  e.mistakes = {name};
  e.explains = true;
  return d;
}

}  // namespace

TEST_CASE("unknown: a draw is the same whenever it is drawn, and another seed draws another") {
  for (std::int64_t number = 0; number < std::ssize(suites::unknown_kinds()); ++number) {
    const Draw draw = suites::draw_unknown(3, number), again = suites::draw_unknown(3, number);
    CAPTURE(draw.line);
    CAPTURE(draw.planted);
    CHECK(draw.line == again.line);
    CHECK(draw.planted == again.planted);
    CHECK_FALSE(draw.planted.empty());
    const Draw other = suites::draw_unknown(4, number);
    CHECK(draw.line + draw.planted != other.line + other.planted);
    for (const auto& [name, tensor] : draw.made) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        if (std::isnan(tensor[i])) continue;
        REQUIRE(tensor[i] == again.made.at(name)[i]);
      }
    }
  }
}

TEST_CASE("unknown: an answer is judged by what the named mistake does") {
  const Draw draw = scale_draw();
  const auto judgement = judged_draw(draw);
  CHECK(suites::answer(draw, judgement, naming("scale_missing")) == Answer::kRight);
  CHECK(suites::answer(draw, judgement, naming("head_tiled")) == Answer::kWrong);
  CHECK(suites::answer(draw, judgement, naming("a name of nothing")) == Answer::kWrong);
  Diagnosis in_head = naming("scale_missing");
  in_head.explanations[0].where = {"head 1"};
  CHECK(suites::answer(draw, judgement, in_head) == Answer::kWrong);
  Diagnosis silent = naming("head_tiled");
  silent.explanations[0].explains = false;
  CHECK(suites::answer(draw, judgement, silent) == Answer::kUndecided);
  silent.found = {"o holds 0 in value channels v >= 8"};
  CHECK(suites::answer(draw, judgement, silent) == Answer::kWrong);
}

TEST_CASE("unknown: a finding and a pattern are right that have the words of the draw") {
  Draw draw = scale_draw();
  const auto judgement = judged_draw(draw);
  Diagnosis d;
  d.pattern = "o: value channels v >= 8, all zero";
  draw.pattern = {"v >= 8", "all zero"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kRight);
  draw.pattern = {"v >= 9", "all zero"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kUndecided);
  d.found = {"o holds what is right of token t - 1"};
  draw.words = {"o", "of token t - 1"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kRight);
  draw.words = {"o", "of token t - 2"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kWrong);
  d.found = {"o holds what is right of token t - 12"};
  draw.words = {"o", "of token t - 1"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kWrong);
  d.found = {"final_state holds what is right of token t - 1"};
  CHECK(suites::answer(draw, judgement, d) == Answer::kWrong);
}

TEST_CASE("unknown: what the budgets hide is not counted") {
  Draw draw = scale_draw();
  CHECK(suites::answered(draw).answer == Answer::kRight);
  draw.parts = {draw.exact};
  CHECK(suites::answered(draw).answer == Answer::kHidden);
  Draw honest = suites::drawn_call(delta::slice(), kDecode);
  suites::plant(honest, [&](const Kernel& right) { return right(honest.call); });
  CHECK(suites::answered(honest).answer == Answer::kHidden);
}

// v_tail_unwritten explains whatever stands in the tail; what stands there is computed.
TEST_CASE("unknown: value channels that are not read are told from those that are not written") {
  const suites::AnsweredDraw tail = suites::answered(suites::draw_unknown(1, 38));
  CHECK(tail.said == "v_tail_of_16_unread");
  CHECK(tail.answer == Answer::kRight);
}

}  // namespace goldenrule::explain::test
