// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that a kernel makes in some blocks are named with the blocks. Kernels are the emulated
// ones of the contract: an honest one whose outputs are, in some blocks, those of a mistaken one.
// The blocks to be said are those of the planted set in which the mistaken kernel is refused.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/attention/slice.hpp"
#include "reference/backward/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/by_blocks.hpp"
#include "reference/explain/diagnose.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using BlockSet = std::function<bool(std::int64_t unit, std::int64_t head)>;
using FailingBlocks = std::vector<bool>;

const BlockSet kInSequence = [](auto unit, auto) { return unit == 1; };
const BlockSet kInTwoSequences = [](auto unit, auto) { return unit == 0 || unit == 2; };
const BlockSet kInHead = [](auto, auto head) { return head == 1; };
const BlockSet kInOneBlock = [](auto unit, auto head) { return unit == 1 && head == 2; };

verdict::Judgement judged(const verdict::Slice& slice, const Record& record,
                          const contract::Contract& contract) {
  return verdict::judgement(slice, record,
                            {.contract = contract, .precision = scalar::Precision::kDouble});
}

// A call, and what an honest kernel makes of it.
struct Planted {
  Planted(const verdict::Slice& of, const std::string& line)
      : slice(of), call(make_call(line)), contract(slice.default_contract(call)) {
    honest = calls::stored(call, contract, kernel()(call));
    std::vector<std::string> names;
    for (const auto& [name, tensor] : honest) names.push_back(name);
    map.emplace_back(call, names);
  }

  [[nodiscard]] Kernel kernel() const { return verdict::emulated_kernel(slice, contract, 7); }

  // Nothing where the changed call is none.
  [[nodiscard]] std::optional<TensorMap> mistaken(const Mistake& mistake) const {
    if (!mistake.applies(call)) return std::nullopt;
    try {
      TensorMap made = calls::stored(call, contract, mistake.commit(call, kernel()));
      for (const auto& [name, tensor] : honest) {
        if (!made.contains(name) || made.at(name).shape() != tensor.shape()) return std::nullopt;
      }
      return made;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // How many of the blocks that an element belongs to are in the set, and how many there are.
  [[nodiscard]] std::pair<int, int> inside(const std::string& name, std::int64_t i,
                                           const BlockSet& set) const {
    const OutputBlocks& output = map.front().output(name);
    int in = 0, all = 0;
    for (const auto unit : output.units[static_cast<std::size_t>(output.grid.row_of(i))]) {
      for (const auto head : output.heads[static_cast<std::size_t>(output.grid.head_of(i))]) {
        in += set(unit, head) ? 1 : 0;
        ++all;
      }
    }
    return {in, all};
  }

  // Outputs that are `made` in the set; where the set has some addends of a sum, that share of it.
  void plant(Record& record, const TensorMap& made, const BlockSet& set) const {
    for (auto& [name, tensor] : record.outputs) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const auto [in, all] = inside(name, i, set);
        if (in == 0) continue;
        const double share = static_cast<double>(in) / all;
        const double y = made.at(name)[i];
        tensor.set(i, in == all ? y : tensor[i] + share * (y - tensor[i]));
      }
    }
  }

  [[nodiscard]] Record capture() const {
    Record record = call;
    record.outputs = honest;
    record.contract = contract.name;
    return record;
  }

  // The blocks in which a kernel with these outputs is refused, but for sums.
  [[nodiscard]] FailingBlocks failing(const TensorMap& outputs) const {
    Record record = capture();
    record.outputs = outputs;
    const auto judgement = judged(slice, record, contract);
    FailingBlocks blocks(map.front().size(), false);
    for (const Failures& f : find_failures(record, judgement.contract, judgement.expected)) {
      const OutputBlocks& output = map.front().output(f.name);
      for (std::int64_t i = 0; i < std::ssize(f.failing); ++i) {
        if (f.failing[static_cast<std::size_t>(i)] == 0) continue;
        const auto& units = output.units[static_cast<std::size_t>(output.grid.row_of(i))];
        const auto& heads = output.heads[static_cast<std::size_t>(output.grid.head_of(i))];
        if (units.size() * heads.size() > 1) continue;
        blocks[map.front().block(units.front(), heads.front())] = true;
      }
    }
    return blocks;
  }

  // The words for the set, nothing where the mistake does not show both in it and outside of it.
  [[nodiscard]] std::string words(const FailingBlocks& shows, const BlockSet& set) const {
    const std::size_t heads = map.front().block(1, 0);
    std::vector<Place> places(shows.size(), Place::kOpen);
    bool in = false, out = false;
    for (std::size_t b = 0; b < shows.size(); ++b) {
      if (!shows[b]) continue;
      const bool here =
          set(static_cast<std::int64_t>(b / heads), static_cast<std::int64_t>(b % heads));
      places[b] = here ? Place::kHere : Place::kElsewhere;
      (here ? in : out) = true;
    }
    return in && out ? map.front().words(places) : "";
  }

  const verdict::Slice& slice;
  Record call;
  const contract::Contract& contract;
  TensorMap honest;
  std::vector<BlockMap> map;
};

// Pairs of the whole call have no time.
Diagnosis diagnosed(const Planted& planted, const Record& record) {
  const auto judgement = judged(planted.slice, record, planted.contract);
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
    const Planted planted(slice, line);
    for (const Mistake& mistake : slice.mistakes()) {
      if (drawn++ % one_in != 0) continue;
      const auto made = planted.mistaken(mistake);
      if (!made) continue;
      const FailingBlocks shows = planted.failing(*made);
      for (std::size_t s = 0; s < sets.size(); ++s) {
        if (one_in > 1 && s != drawn / one_in % sets.size()) continue;
        const std::string where = planted.words(shows, sets[s]);
        if (where.empty()) continue;
        Record record = planted.capture();
        planted.plant(record, *made, sets[s]);
        count(diagnosed(planted, record), mistake, where, tally);
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
    const Planted planted(delta::slice(), line);
    const Mistake& mistake = mistake_of(delta::slice(), "scale_missing");
    Record record = planted.capture();
    planted.plant(record, *planted.mistaken(mistake), kInHead);
    REQUIRE(diagnosed(planted, record).explanations.at(0).name_and_place() ==
            "scale_missing in head 1");
    TensorMap noisy = planted.honest;
    for (auto& [name, tensor] : noisy) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        tensor.set(i, tensor[i] * (1.0 + 0.3 * std::sin(static_cast<double>(i))));
      }
    }
    planted.plant(record, noisy, [](auto unit, auto head) { return unit == 2 && head == 3; });
    const Diagnosis d = diagnosed(planted, record);
    CHECK(std::ranges::none_of(d.explanations, &Explanation::explains));
  }
}

TEST_CASE("two mistakes in blocks of their own are named together") {
  const std::array names{"scale_missing", "beta_ignored", "state_transposed_out", "gate_ignored"};
  const std::vector<std::string> where{"head 1", "head 3 of sequence 2"};
  int all = 0, named = 0;
  for (const std::string& line : kDeltaLines) {
    const Planted planted(delta::slice(), line);
    for (const char* a : names) {
      for (const char* b : names) {
        if (a == b) continue;
        Record record = planted.capture();
        planted.plant(record, *planted.mistaken(mistake_of(delta::slice(), a)), kInHead);
        planted.plant(record, *planted.mistaken(mistake_of(delta::slice(), b)),
                      [](auto unit, auto head) { return unit == 2 && head == 3; });
        const Diagnosis d = diagnosed(planted, record);
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
  const Planted planted(delta::slice(), kDeltaLines[2]);
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
