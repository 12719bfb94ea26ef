// SPDX-License-Identifier: Apache-2.0
//
// An honest kernel in fp32, of any design, is never refused: in the cases of the suite, and in many
// thousands of random calls, whose uniforms are not kept away from any edge.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "fixtures/cases/suite.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/drafts/rule/evaluate.hpp"
#include "reference/drafts/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"

using namespace goldenrule;
using verdict::Verdict;

namespace {

const contract::Contract& ideal() { return contract::find_contract("ideal"); }

struct Count {
  std::int64_t compared = 0, open = 0, wrong = 0;
};

// An emulated kernel on a call.
Count judged(const call::Record& record, std::uint64_t seed) {
  const verdict::Expectations expected =
      verdict::expect(drafts::slice(), record, ideal(), scalar::Precision::kDouble);
  const call::TensorMap outputs =
      calls::stored(record, ideal(), drafts::slice().emulate(record, ideal(), seed));
  Count count;
  for (const auto& [name, tensor] : outputs) {
    const auto report = verdict::judge(name, tensor, expected.outputs.at(name), ideal());
    count.compared += report.compared;
    count.open += report.undefined;
    count.wrong += report.out_of_budget;
  }
  return count;
}

// The case with uniforms, for acceptance and for the token, that nobody kept from an edge.
void randomize(std::uint64_t seed, call::Record& record) {
  for (const char* name : {"uniforms", "recover_uniforms"}) {
    const auto it = record.inputs.find(name);
    if (it == record.inputs.end()) continue;
    const random::Stream stream(seed, name);
    for (std::int64_t i = 0; i < it->second.size(); ++i) it->second.set(i, stream.uniform(i));
  }
}

}  // namespace

TEST_CASE(
    "draft acceptance: an honest kernel passes every case of the suite, where nothing is open") {
  for (const cases::Case& c : cases::load_suite("draft_acceptance").cases) {
    const call::Record record = cases::make_record(c);
    CAPTURE(record.case_line);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Count count = judged(record, seed);
      CHECK(count.wrong == 0);
      CHECK(count.open == 0);
      CHECK(count.compared > 0);
    }
  }
}

// Six kinds of call, 18 designs; GOLDENRULE_RUNS asks for more runs.
TEST_CASE("draft acceptance: an honest kernel is refused in none of many random calls") {
  const char* asked = std::getenv("GOLDENRULE_RUNS");
  const std::int64_t runs = asked == nullptr ? 600 : std::atoll(asked);
  constexpr const char* kLines[] = {
      "op=draft_acceptance mode=rejection B=6 S=3 Z=7 io=f32 seed=",
      "op=draft_acceptance mode=rejection B=4 S=3 Z=1025 io=f32 pattern=E seed=",
      "op=draft_acceptance mode=rejection B=6 S=3 Z=7 io=bf16 draft_kind=one_hot accept_rule=lt "
      "seed=",
      "op=draft_acceptance mode=rejection B=4 S=2 Z=300 io=f32 recover=race seed=",
      "op=draft_acceptance mode=rejection B=6 S=4 Z=64 io=f16 pattern=T stops=mixed seed=",
      "op=draft_acceptance mode=greedy B=9 S=7 Z=9 stops=mixed padding=mixed counts=mixed seed="};
  Count all;
  for (std::int64_t run = 0; run < runs; ++run) {
    const auto seed = static_cast<std::uint64_t>(run);
    const std::string line = kLines[seed % std::size(kLines)] + std::to_string(seed);
    call::Record record = cases::make_record(cases::parse(line));
    randomize(seed, record);
    CAPTURE(line);
    const Count count = judged(record, seed);
    CHECK(count.wrong == 0);
    all.compared += count.compared;
    all.open += count.open;
    all.wrong += count.wrong;
  }
  MESSAGE(runs << " runs, " << all.compared << " numbers compared, " << all.open << " open, "
               << all.wrong << " wrong");
  CHECK(all.compared > 20 * runs);
}

// The bounds are about the right size: near enough to an edge kernels differ from the rule, and
// where they do they are within what is open.
TEST_CASE("draft acceptance: kernels differ where decisions are open, and only there") {
  std::int64_t differ = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string line =
        "op=draft_acceptance mode=rejection B=2 S=1 Z=3000 io=f32 pattern=N seed=" +
        std::to_string(seed);
    call::Record record = cases::make_record(cases::parse(line));
    // A uniform on the edge between two tokens, as nearly as it can be.
    const std::int64_t Z = 3000;
    for (std::int64_t n = 0; n < 2; ++n) {
      double total = 0.0;
      double half = 0.0;
      for (std::int64_t x = 0; x < Z; ++x) {
        const double r = std::max(record.inputs.at("target_probs")[2 * n * Z + x] -
                                      record.inputs.at("draft_probs")[n * Z + x],
                                  0.0);
        total += r;
        if (x < Z / 2) half += r;
      }
      record.inputs.at("recover_uniforms").set(n, half / total);
    }
    const call::TensorMap a = drafts::slice().emulate(record, ideal(), seed);
    const call::TensorMap b = drafts::slice().emulate(record, ideal(), seed + 1);
    for (std::int64_t i = 0; i < a.at("next_anchor").size(); ++i) {
      differ += a.at("next_anchor")[i] != b.at("next_anchor")[i] ? 1 : 0;
    }
    const Count count = judged(record, seed);
    CHECK(count.wrong == 0);
    CHECK(count.open >= 4);  // the token and the next anchor of both rows
  }
  MESSAGE(differ << " of 400 rows differ between two honest kernels");
  CHECK(differ > 10);
}
