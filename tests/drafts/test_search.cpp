// SPDX-License-Identifier: Apache-2.0
//
// Decisions of draft acceptance kernels, found: whole calls of a kernel that decides otherwise
// (suites/unknown/decision_kernel.hpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/drafts/search/find.hpp"
#include "reference/drafts/search/given.hpp"
#include "reference/drafts/search/points.hpp"
#include "reference/drafts/search/read.hpp"
#include "reference/drafts/search/words.hpp"
#include "reference/drafts/slice.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/suites/unknown/decision_kernel.hpp"
#include "tests/record_of.hpp"

namespace goldenrule::drafts {
namespace {

using cases::record_of;
using suites::decide;

constexpr const char* kRejection =
    "op=draft_acceptance mode=rejection B=64 S=5 Z=257 io=f32 page_size=4 padding=mixed pattern=A "
    "seed=3";
constexpr const char* kRace =
    "op=draft_acceptance mode=rejection B=64 S=5 Z=257 io=f32 recover=race pattern=A seed=4";
constexpr const char* kOneHot =
    "op=draft_acceptance mode=rejection B=64 S=5 Z=257 io=f32 draft_kind=one_hot pattern=A seed=6";
constexpr const char* kGreedy =
    "op=draft_acceptance mode=greedy B=64 S=5 Z=257 stops=mixed pattern=A seed=5";

const contract::Contract& ideal() { return contract::find_contract("ideal"); }

call::Record capture(const char* line, const CountPoint& count, const TokenPoint& token) {
  call::Record record = record_of(line);
  record.outputs = calls::stored(record, ideal(), decide(record, count, token));
  return record;
}

verdict::Searched searched(const call::Record& record) {
  return find_decisions(verdict::judgement(slice(), record, {.contract = ideal()}));
}

bool says(const verdict::Searched& searched, const std::string& words) {
  return std::ranges::any_of(searched.texts, [&](const std::string& text) {
    return text.find(words) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("draft search: what a call cannot have is not tried") {
  const std::string one_hot = std::string(kRejection) + " draft_kind=one_hot";
  const std::string one_hot_race = std::string(kRace) + " draft_kind=one_hot";
  for (const std::string& line :
       {std::string(kRejection), std::string(kRace), one_hot, one_hot_race, std::string(kGreedy)}) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const Work work(record);
    const Reading reading(work);
    // In the place of some rejected draft each point says a token.
    const auto says_any = [&](const TokenPoint& point) {
      for (std::int64_t n = 0; n < work.plan.dims.rows; ++n) {
        for (std::int64_t a = 0; !work.row(n).padded() && a < work.row(n).drafts; ++a) {
          if (token_of(reading, n, a, point)) return true;
        }
      }
      return false;
    };
    for (const TokenPoint& point : token_points(work)) {
      CHECK_MESSAGE(says_any(point), words(point));
      const bool reads_q = !work.is_one_hot() && point.weights != Weights::kTarget;
      CHECK_MESSAGE((reads_q || point.draft == From::kOwn), words(point));
    }
    const bool without_q = std::ranges::any_of(
        count_points(work), [](const CountPoint& point) { return point.test == Test::kWithoutQ; });
    CHECK(without_q == (!work.is_greedy() && !work.is_one_hot()));
  }
}

TEST_CASE("draft search: a kernel that decides otherwise is found, and the whole call is said") {
  struct Wrong {
    const char* line;
    CountPoint count;
    TokenPoint token;
  };
  const std::vector<Wrong> all{
      {kRejection, {.test = Test::kInverted}, {}},
      {kRejection, {.test = Test::kWithoutQ, .stop = Stop::kSum}, {}},
      {kRejection, {.uniform = From::kFirst}, {}},
      {kRejection, {.test = Test::kAlways}, {}},
      {kRejection, {.test = Test::kSampled}, {}},
      {kRace, {.test = Test::kSampled}, {}},
      {kOneHot, {.test = Test::kSampled}, {}},
      {kRejection, {}, {.chosen = Chosen::kByDecision}},
      {kRejection, {}, {.chosen = Chosen::kByRejection}},
      {kRejection, {.stop = Stop::kAllOrNone}, {}},
      {kRejection, {}, {.weights = Weights::kDistance}},
      {kRejection, {}, {.draft = From::kFirst}},
      {kRejection, {}, {.chosen = Chosen::kDraft}},
      {kRejection, {.test = Test::kWithoutU}, {.weights = Weights::kDraft}},
      {kRace, {}, {.chosen = Chosen::kTimesNoise}},
      {kRace, {.stop = Stop::kOneMore}, {.chosen = Chosen::kOfFirstRow}},
      {kGreedy, {.stop = Stop::kLastSuccess}, {}},
      {kGreedy, {}, {.target = From::kFirst}},
  };
  for (const Wrong& wrong : all) {
    CAPTURE(wrong.line);
    const auto found = searched(capture(wrong.line, wrong.count, wrong.token));
    for (const std::string& text : found.texts) CAPTURE(text);
    CHECK(found.whole);
    CHECK(std::ssize(found.texts) ==
          (wrong.count != CountPoint() ? 1 : 0) + (wrong.token != TokenPoint() ? 1 : 0));
    if (wrong.count != CountPoint()) CHECK(says(found, words(wrong.count)));
    if (wrong.token != TokenPoint()) CHECK(says(found, words(wrong.token)));
  }
}

TEST_CASE("draft search: a kernel that samples the target and compares is said as a whole") {
  // It emits what it drew: of the target alone, and behind all drafts by the uniform of the row.
  const CountPoint count{.test = Test::kSampled};
  for (const Chosen chosen : {Chosen::kByDecision, Chosen::kByRejection}) {
    const TokenPoint token{.weights = Weights::kTarget, .chosen = chosen};
    for (const char* line : {kRejection, kOneHot, kRace}) {
      CAPTURE(line);
      const auto found = searched(capture(line, count, token));
      CHECK(found.whole);
      CHECK(std::ssize(found.texts) == 2);
      CHECK(says(found, words(count)));
      CHECK(says(found, words(token)));
    }
  }
}

TEST_CASE("draft search: sampling is not said of a kernel that decides otherwise") {
  const std::string sampled = words(CountPoint{.test = Test::kSampled});
  for (const char* line : {kRejection, kOneHot, kRace}) {
    CAPTURE(line);
    CHECK_FALSE(says(searched(capture(line, {}, {})), sampled));
    for (std::size_t i = 1; i < kTests; ++i) {
      const auto test = static_cast<Test>(i);
      if (test == Test::kSampled) continue;
      CAPTURE(i);
      CHECK_FALSE(says(searched(capture(line, {.test = test}, {})), sampled));
    }
  }
}

TEST_CASE("draft search: a token beyond every integer is a wrong token") {
  const call::Record record = record_of(kRejection);
  const Work work(record);
  call::TensorMap outputs = decide(record, {}, {});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const call::Tensor right = outputs.at("tokens");
  for (const auto& [given, expected] :
       {std::pair(0x1p63, kMost), {1e300, kMost}, {-1e300, kLeast}}) {
    CAPTURE(given);
    std::vector<double> values = right.to_doubles();
    const auto row = Kernel(work, outputs).tokens(Kernel(work, outputs).counts()).front();
    values[static_cast<std::size_t>(row.n * right.shape()[1] + row.accepted)] = given;
    call::TensorMap wrong = outputs;
    wrong.at("tokens") = {call::DType::kF64, right.shape(), values};
    const Kernel kernel(work, wrong);
    const auto counts = kernel.counts();
    const auto tokens = kernel.tokens(counts);
    CHECK(tokens.front().n == row.n);  // the failing one
    CHECK(tokens.front().fails);
    CHECK(tokens.front().value == expected);
    CHECK_FALSE(kernel.follows(counts));
  }
}

TEST_CASE("draft search: nothing is said of a right kernel, and none of a few rows") {
  for (const char* line : {kRejection, kRace, kGreedy}) {
    CHECK(searched(capture(line, {}, {})).texts.empty());
  }
  // Two rows that fail: many kernels do that.
  const auto few =
      searched(capture("op=draft_acceptance mode=rejection B=4 S=2 Z=65 io=f32 pattern=A seed=7",
                       {.test = Test::kInverted}, {}));
  CHECK(few.texts.empty());
  CHECK_FALSE(few.whole);
}

TEST_CASE("draft search: a number that does not follow from the decisions is not said") {
  call::Record record = capture(kRejection, {.stop = Stop::kAllOrNone}, {});
  call::Tensor& committed = record.outputs.at("committed");
  committed.set(2, committed[2] + 1);
  const auto found = searched(record);
  CHECK(says(found, words(CountPoint{.stop = Stop::kAllOrNone})));
  CHECK_FALSE(found.whole);
}

TEST_CASE("draft search: no mistake is named in some rows where all of them are said") {
  // A kernel that accepts all or none is also one that is shifted in some rows.
  const call::Record record = capture(kRejection, {.stop = Stop::kAllOrNone}, {});
  const auto judgement = verdict::judgement(slice(), record, {.contract = ideal()});
  const auto diagnosis = explain::diagnose(judgement, slice().mistakes());
  REQUIRE_FALSE(diagnosis.found.empty());
  CHECK(std::ranges::none_of(diagnosis.explanations, &explain::Explanation::explains));
}

TEST_CASE("draft search: no drafts or all of them in half of the rows are said as that") {
  // In every other row the kernel is right.
  const auto half = [](const char* line, Test test) {
    call::Record record = capture(line, {.test = test}, {});
    const call::Record right = capture(line, {}, {});
    const std::int64_t rows = record.inputs.at("start").size();
    for (auto& [name, output] : record.outputs) {
      const std::int64_t width = output.size() / rows;
      for (std::int64_t i = 0; i < output.size(); ++i) {
        if (i / width % 2 != 0) output.set(i, right.outputs.at(name)[i]);
      }
    }
    return record;
  };
  // Each failing row halves the chance, so that there must be enough of them.
  constexpr const char* kMany =
      "op=draft_acceptance mode=rejection B=96 S=5 Z=257 io=f32 pattern=A seed=3";
  for (const char* line : {kMany, kRace, kGreedy}) {
    for (const Test test : {Test::kNever, Test::kAlways}) {
      CAPTURE(line);
      const std::string name = test == Test::kNever ? "accept_none" : "accept_all";
      const auto judgement = verdict::judgement(slice(), half(line, test), {.contract = ideal()});
      const auto diagnosis = explain::diagnose(judgement, slice().mistakes());
      REQUIRE_FALSE(diagnosis.explanations.empty());
      const explain::Explanation& first = diagnosis.explanations.front();
      CHECK(first.explains);
      CHECK(first.name() == name);
      CHECK(first.name_and_place().starts_with(name + " in sequences "));
    }
  }
}

TEST_CASE("draft search: of a token that the call brings the target has no row") {
  call::Record record = record_of(
      "op=draft_acceptance mode=rejection B=4 S=3 Z=33 io=f32 bonus=given pattern=A seed=9");
  record.outputs = calls::stored(record, ideal(), decide(record, {.test = Test::kAlways}, {}));
  call::Tensor& tokens = record.outputs.at("tokens");
  const call::Shape& shape = record.inputs.at("target_probs").shape();
  REQUIRE(shape[1] == 3);  // none behind the last draft
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    const std::int64_t at = n * 4 + 3;
    tokens.set(at, tokens[at] == 0.0 ? 1.0 : 0.0);
  }
  const auto found = searched(record);
  CHECK_FALSE(says(found, "the token"));
  CHECK_FALSE(found.whole);
}

TEST_CASE("draft search: a row that contradicts a point refutes it") {
  call::Record record = capture(kRejection, {.test = Test::kInverted}, {});
  call::Tensor& accepted = record.outputs.at("accepted");
  const double given = accepted[1];
  accepted.set(1, given == 0.0 ? 1.0 : 0.0);
  CHECK_FALSE(says(searched(record), words(CountPoint{.test = Test::kInverted})));
}

}  // namespace goldenrule::drafts
