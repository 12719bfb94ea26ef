// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that a kernel makes in some blocks are named with the blocks. Kernels are the emulated
// ones of the contract: an honest one whose outputs are, in some blocks, those of a mistaken one.
// The blocks to be said are those of the planted set in which the mistaken kernel is refused.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "reference/attention/slice.hpp"
#include "reference/backward/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/suites/unknown/blocks.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using suites::BlockPlanter;
using suites::BlockSet;
using suites::FailingBlocks;

const BlockSet kInSequence = [](auto unit, auto) { return unit == 1; };
const BlockSet kInTwoSequences = [](auto unit, auto) { return unit == 0 || unit == 2; };
const BlockSet kInHead = [](auto, auto head) { return head == 1; };
const BlockSet kInOneBlock = [](auto unit, auto head) { return unit == 1 && head == 2; };

// Pairs of the whole call have no time.
Diagnosis diagnosed(const BlockPlanter& planted, const TensorMap& outputs) {
  const auto judgement =
      verdict::judgement(planted.slice, planted.capture(outputs),
                         {.contract = planted.contract, .precision = scalar::Precision::kDouble});
  return diagnose(judgement, planted.slice.mistakes(), {.seconds = 0.0});
}

struct Tally {
  int planted = 0, named = 0, placed = 0, wrong = 0, whole = 0, none = 0;
};

bool is_named(const Explanation& e, std::string_view name) {
  return e.name() == name || std::ranges::find(e.same, name) != e.same.end();
}

void count(const Diagnosis& d, const Mistake& mistake, const std::string& where, Tally& tally) {
  ++tally.planted;
  if (d.explanations.empty() || !d.explanations[0].explains) {
    ++tally.none;
  } else if (const Explanation& first = d.explanations[0]; first.where.empty()) {
    ++tally.whole;
    MESSAGE("  whole: ", mistake.name, " in ", where, " named ", first.name());
  } else if (!is_named(first, mistake.name)) {
    ++tally.wrong;
    MESSAGE("  wrong: ", mistake.name, " in ", where, " named ", first.name_and_place());
  } else {
    ++tally.named;
    tally.placed += first.where[0] == where ? 1 : 0;
    if (first.where[0] != where) MESSAGE("  place: ", where, " said ", first.name_and_place());
  }
}

// One mistake of `one_in`, each in one of the sets in turn.
Tally planted_singles(const verdict::Slice& slice, const std::vector<std::string>& lines,
                      std::size_t one_in) {
  const std::array sets{kInSequence, kInTwoSequences, kInHead, kInOneBlock};
  Tally tally;
  std::size_t drawn = 0;
  for (const std::string& line : lines) {
    const BlockPlanter planted(slice, line);
    for (const Mistake& mistake : slice.mistakes()) {
      if (drawn++ % one_in != 0) continue;
      const auto made = planted.mistaken(mistake);
      if (!made) continue;
      const FailingBlocks shows = planted.failing(*made);
      for (std::size_t s = 0; s < sets.size(); ++s) {
        if (one_in > 1 && s != drawn / one_in % sets.size()) continue;
        const std::string where = planted.words(shows, sets[s]);
        if (where.empty()) continue;
        TensorMap outputs = planted.honest;
        planted.plant(outputs, *made, sets[s]);
        count(diagnosed(planted, outputs), mistake, where, tally);
      }
    }
  }
  MESSAGE("planted ", tally.planted, ", named ", tally.named, " (", tally.placed,
          " with the very blocks), for the whole call ", tally.whole, ", wrong ", tally.wrong,
          ", not ", tally.none);
  return tally;
}

const std::vector<std::string> kDeltaLines{
    "op=gdn mode=decode B=4 H=2 HV=4 K=32 V=32 slots=permuted P=7",
    "op=kda mode=mtp B=4 T=4 H=4 HV=4 K=32 V=32 gate=log slots=permuted P=6",
    "op=gdn mode=prefill lens=40,33,17,70 H=2 HV=4 K=32 V=32 gate=log h0=1"};
const std::vector<std::string> kAttentionLines{
    "op=attention mode=decode lens=4,4,4 ctx=40,33,70 H=2 HV=4 K=64 V=32 page=16 pattern=A"};
const std::vector<std::string> kGradientLines{
    "op=gdn_backward mode=prefill lens=40,34,20 H=2 HV=4 K=32 V=24 h0=1 dstate=1 pattern=A"};

const Mistake& mistake_of(const verdict::Slice& slice, std::string_view name) {
  return *std::ranges::find(slice.mistakes(), name, &Mistake::name);
}

TEST_CASE("a mistake in some blocks is named with them: delta rule") {
  const Tally tally = planted_singles(delta::slice(), kDeltaLines, 9);
  CHECK(tally.planted >= 20);
  CHECK(tally.wrong == 0);
  CHECK(tally.named * 10 >= tally.planted * 7);
}

TEST_CASE("a mistake in some blocks is named with them: attention and gradients") {
  for (const Tally& tally : {planted_singles(attention::slice(), kAttentionLines, 2),
                             planted_singles(backward::slice(), kGradientLines, 4)}) {
    CHECK(tally.planted >= 10);
    CHECK(tally.wrong == 0);
    CHECK(tally.named * 10 >= tally.planted * 7);
  }
}

TEST_CASE("noise in another block leaves no name") {
  for (const std::string& line : kDeltaLines) {
    const BlockPlanter planted(delta::slice(), line);
    const Mistake& mistake = mistake_of(delta::slice(), "scale_missing");
    TensorMap outputs = planted.honest;
    planted.plant(outputs, *planted.mistaken(mistake), kInHead);
    REQUIRE(diagnosed(planted, outputs).explanations.at(0).name_and_place() ==
            "scale_missing in head 1");
    TensorMap noisy = planted.honest;
    for (auto& [name, tensor] : noisy) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        tensor.set(i, tensor[i] * (1.0 + 0.3 * std::sin(static_cast<double>(i))));
      }
    }
    planted.plant(outputs, noisy, [](auto unit, auto head) { return unit == 2 && head == 3; });
    const Diagnosis d = diagnosed(planted, outputs);
    CHECK(std::ranges::none_of(d.explanations, &Explanation::explains));
  }
}

TEST_CASE("two mistakes in blocks of their own are named together") {
  const std::array names{"scale_missing", "beta_ignored", "state_transposed_out", "gate_ignored"};
  const std::vector<std::string> where{"head 1", "head 3 of sequence 2"};
  int all = 0, named = 0;
  for (const std::string& line : kDeltaLines) {
    const BlockPlanter planted(delta::slice(), line);
    for (const char* a : names) {
      for (const char* b : names) {
        if (a == b) continue;
        TensorMap outputs = planted.honest;
        planted.plant(outputs, *planted.mistaken(mistake_of(delta::slice(), a)), kInHead);
        planted.plant(outputs, *planted.mistaken(mistake_of(delta::slice(), b)),
                      [](auto unit, auto head) { return unit == 2 && head == 3; });
        const Diagnosis d = diagnosed(planted, outputs);
        ++all;
        if (d.explanations.empty() || !d.explanations[0].explains) continue;
        const Explanation& first = d.explanations[0];
        INFO(std::string(a), " and ", std::string(b), " in ", line, ": ", first.name_and_place());
        const std::string x(a), y(b);
        CHECK((is_named(first, x + " + " + y) || is_named(first, y + " + " + x)));
        CHECK(std::ranges::is_permutation(first.where, where));
        ++named;
      }
    }
  }
  MESSAGE(named, " of ", all, " named");
  CHECK(named * 3 >= all * 2);
}

TEST_CASE("blocks in words") {
  const BlockPlanter planted(delta::slice(), kDeltaLines[2]);
  const auto words = [&](const BlockSet& set) {
    return planted.words(FailingBlocks(16, true), set);
  };
  CHECK(words(kInSequence) == "sequence 1");
  CHECK(words(kInTwoSequences) == "sequences 0 and 2");
  CHECK(words(kInHead) == "head 1");
  CHECK(words(kInOneBlock) == "head 2 of sequence 1");
  CHECK(words([](auto, auto head) { return head > 1; }) == "heads 2 to 3");
  CHECK(words([](auto unit, auto head) { return unit == head; }) ==
        "4 of 16 blocks: head 0 of sequence 0, head 1 of sequence 1, head 2 of sequence 2, ...");
  FailingBlocks shows(16, true);
  shows[1] = false;  // head 1 of sequence 0 tells nothing
  CHECK(planted.words(shows, [](auto unit, auto head) { return unit > 0 && head == 1; }) ==
        "head 1");
}

}  // namespace
}  // namespace goldenrule::explain::test
