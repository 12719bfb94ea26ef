// SPDX-License-Identifier: Apache-2.0
//
// Captures of kernels with a known mistake are given its name; others are not given any.
#include <doctest/doctest.h>

#include "reference/calls/unwritten.hpp"
#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/slice.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

TEST_CASE("a single mistake is named first, in every mode") {
  const std::vector<Mistake> table = local_table();
  int named = 0;
  for (const std::string& line : {kDecode, kDecodeLog, kMtp, kPrefill}) {
    for (const Mistake& mistake : table) {
      if (!mistake.applies(make_call(line))) continue;
      const Record capture = capture_of(line, {&mistake});
      const Diagnosis d = diagnosis_of(capture, table);
      INFO(mistake.name, " in ", line, ", pattern ", d.pattern);
      REQUIRE(!d.explanations.empty());
      CHECK(d.explanations[0].name() == mistake.name);
      CHECK(d.explanations[0].explains);
      CHECK(d.explanations[0].residual_ratio <= 1.0);
      // These mistakes have nothing in common: no other explains.
      CHECK((d.explanations.size() == 1 || !d.explanations[1].explains));
      CHECK(d.explanations[0].same.empty());
      CHECK(!d.screened);
      CHECK(d.pairs == 0);
      ++named;
    }
  }
  CHECK(named == 20);
}

TEST_CASE("a right capture needs no explanation") {
  const std::vector<Mistake> table = local_table();
  for (const std::string& line : {kDecode, kMtp, kPrefill}) {
    const Diagnosis d = diagnosis_of(capture_of(line, {}), table);
    CHECK(d.pattern.empty());
    CHECK(d.explanations.empty());
    CHECK(d.tried == 0);
  }
}

TEST_CASE("single mistakes have twice the limit, or all that they need where it is 0") {
  const std::vector<Mistake> table = local_table();
  Record capture = capture_of(kDecode, {});
  call::Tensor& o = capture.outputs.at("o");
  o.set(300, 1.5 * o[300] + 1e-3);
  const auto judgement = verdict::judgement(delta::slice(), capture);
  const Diagnosis hurried = diagnose(judgement, table, {.seconds = 1e-9});
  CHECK(hurried.possible >= 3);
  CHECK(hurried.tried == 1);
  CHECK(hurried.stopped_after.has_value());
  const Diagnosis all = diagnose(judgement, table, {.seconds = 0.0});
  CHECK(all.tried == all.possible);
  CHECK(all.pairs == 0);
  CHECK(all.stopped_after.has_value());
}

TEST_CASE("an unknown mistake is not explained") {
  const std::vector<Mistake> table = local_table();
  for (const std::string& line : {kDecode, kMtp, kPrefill}) {
    Record capture = capture_of(line, {});
    call::Tensor& o = capture.outputs.at("o");
    o.set(300, 1.5 * o[300] + 1e-3);
    const Diagnosis d = diagnosis_of(capture, table);
    INFO(line);
    CHECK(d.pattern.starts_with("o: only ("));
    CHECK(d.tried >= 3);
    CHECK(std::ranges::none_of(d.explanations, &Explanation::explains));
  }
}

TEST_CASE("a mistake that a wrong element hides is not an explanation, but a near miss") {
  const std::vector<Mistake> table = local_table();
  Record capture = capture_of(kPrefill, {&kHeadTiled});
  call::Tensor& o = capture.outputs.at("o");
  o.set(5, o[5] + 1.0);
  const Diagnosis d = diagnosis_of(capture, table);
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].name() == "head_tiled");
  CHECK(!d.explanations[0].explains);
  CHECK(d.explanations[0].failing == 1);
}

TEST_CASE("what accounts for less than half of the error is not named") {
  // A tenth of the error is that of the mistake.
  const std::vector<Mistake> table = local_table();
  Record capture = capture_of(kPrefill, {&kHeadTiled});
  const TensorMap right = capture_of(kPrefill, {}).outputs;
  for (auto& [name, t] : capture.outputs) {
    for (std::int64_t i = 0; i < t.size(); ++i) {
      const double error = t[i] - right.at(name)[i];
      t.set(i, right.at(name)[i] + error * (1.0 + std::sin(static_cast<double>(7 * i))));
    }
  }
  CHECK(diagnosis_of(capture, table).explanations.empty());
}

TEST_CASE("a mistake that predicts NaN is no near miss of a wrong tensor") {
  for (const std::string& line : {kDecode, kPrefill}) {
    Record capture = capture_of(line, {});
    for (auto& [name, t] : capture.outputs) {
      for (std::int64_t i = 0; i < t.size(); ++i) {
        t.set(i, t[i] * (1.0 + 0.3 * std::sin(static_cast<double>(i))));
      }
    }
    const Diagnosis d = diagnosis_of(capture, delta::mistakes());
    for (const Explanation& e : d.explanations) {
      INFO(e.name());
      CHECK(!e.explains);
      CHECK(e.name() != "cache_key_dtype");
      CHECK(e.name() != "tail_chunk_dropped");
      CHECK(e.name() != "last_token_dropped");
    }
  }
}

TEST_CASE("pairs are cut short by the limit, single mistakes are not") {
  const std::vector<Mistake> table = local_table();
  Record capture = capture_of(kPrefill, {&kScaleMissing, &kHeadTiled});
  const contract::Contract& contract = delta::default_contract(capture);
  const auto judged = verdict::judgement(
      delta::slice(), capture, {.contract = contract, .precision = scalar::Precision::kDouble});
  const Diagnosis cut = diagnose(judged, table, {.seconds = 0.0});
  REQUIRE(cut.stopped_after);
  CHECK(*cut.stopped_after >= 0.0);
  CHECK(cut.pairs == 0);
  CHECK(cut.possible_pairs > 10);
  CHECK(std::ranges::none_of(cut.explanations, &Explanation::explains));
  const Diagnosis whole = diagnosis_of(capture, table);
  CHECK(!whole.stopped_after);
  CHECK(whole.pairs == whole.possible_pairs);
  const Record single = capture_of(kPrefill, {&kScaleMissing});
  const auto judged_single = verdict::judgement(
      delta::slice(), single, {.contract = contract, .precision = scalar::Precision::kDouble});
  const Diagnosis d = diagnose(judged_single, table, {.seconds = 0.0});
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].explains);
  CHECK(!d.stopped_after);
}

TEST_CASE("a mistake that may be a convention says which") {
  const auto meant = [](const std::string& line, const char* name) {
    const Mistake& mistake = *std::ranges::find(delta::mistakes(), name, &Mistake::name);
    return calls::meant_convention(mistake, make_call(line)).value_or("");
  };
  const std::string plain = "op=gdn mode=decode B=1 H=2 HV=4 K=16 V=8 ";
  CHECK(meant(plain, "head_tiled") == "head_map=tiled");
  CHECK(meant(plain + "head_map=tiled", "head_tiled") == "head_map=grouped");
  CHECK(meant(plain + "gate=log", "gate_log2") == "gate=log2");
  CHECK(meant(plain, "gate_log2").empty());  // the gate is computed: no call would say so
  CHECK(meant(plain + "l2_eps=0.001", "l2_eps_ignored") == "l2_eps=1e-6");
  CHECK(meant(plain, "no_delta").empty());
  const Record capture =
      capture_of(kDecode, {&*std::ranges::find(delta::mistakes(), "head_tiled", &Mistake::name)});
  const Diagnosis d = diagnosis_of(capture, delta::mistakes());
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].meant == std::vector<std::string>{"head_map=tiled"});
}

TEST_CASE("an eps that is ignored is named, not a form of the norm") {
  const std::string line =
      "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=permuted l2_eps=0.001 pattern=I";
  const Mistake& mistake = *std::ranges::find(delta::mistakes(), "l2_eps_ignored", &Mistake::name);
  const Diagnosis d = diagnosis_of(capture_of(line, {&mistake}), delta::mistakes());
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].explains);
  CHECK(d.explanations[0].name() == "l2_eps_ignored");
}

TEST_CASE("a name stands once in an answer") {
  const std::string line = "op=gdn mode=decode B=3 H=2 HV=4 K=32 V=32 slots=permuted gate=log";
  Record capture = capture_of(
      line, {&*std::ranges::find(delta::mistakes(), "state_transposed", &Mistake::name)});
  call::Tensor& o = capture.outputs.at("o");
  o.set(5, o[5] + 1.0);
  const Diagnosis d = diagnosis_of(capture, delta::mistakes());
  std::vector<std::string> names;
  for (const Explanation& e : d.explanations) names.push_back(e.name());
  std::ranges::sort(names);
  CHECK(std::ranges::adjacent_find(names) == names.end());
}

TEST_CASE("pairs are found when no single mistake explains") {
  const std::vector<Mistake> table = local_table();
  for (const auto& pair :
       {std::vector{&kScaleMissing, &kHeadTiled}, std::vector{&kGateLog2, &kScaleMissing},
        std::vector{&kHeadTiled, &kStateTransposed}}) {
    const Record capture = capture_of(kPrefill, {pair[0], pair[1]});
    const Diagnosis d = diagnosis_of(capture, table);
    INFO(pair[0]->name, " + ", pair[1]->name);
    REQUIRE(!d.explanations.empty());
    const Explanation& first = d.explanations[0];
    CHECK(first.explains);
    REQUIRE(first.mistakes.size() == 2);
    for (const Mistake* m : pair) {
      CHECK(std::ranges::find(first.mistakes, m->name) != first.mistakes.end());
    }
    CHECK(d.pairs > 0);
    // Here the order does not matter: the other one is the same explanation.
    CHECK(first.same.size() == 1);
  }
}

// What the first kernel leaves is what the second starts from: a sum over its roundings, where
// shifts of one sign cancel for some element (a leak through q^T S), and beside it the rounding of
// the second, which random signs cancel for some other (a pool that was updated twice).
TEST_CASE("a mistake that feeds one call into the next is named") {
  for (const auto& [line, name] : {std::pair(kPrefill, "state_leaks"), {kMtp, "stale_state"}}) {
    const Mistake& mistake = *std::ranges::find(delta::mistakes(), name, &Mistake::name);
    const Diagnosis d =
        diagnosis_of(capture_of(line, {&mistake}), std::vector{mistake, kHeadTiled, kGateLog2});
    INFO(name);
    REQUIRE(!d.explanations.empty());
    CHECK(d.explanations[0].name() == name);
    CHECK(d.explanations[0].explains);
    CHECK(d.pairs == 0);
  }
}

TEST_CASE("two names for one mistake are reported as such") {
  std::vector<Mistake> table = local_table();
  table.push_back(kHeadTiled);
  table.back().name = "head_tiled_again";
  const Diagnosis d = diagnosis_of(capture_of(kDecode, {&kHeadTiled}), table);
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].name() == "head_tiled");
  CHECK(d.explanations[0].same == std::vector<std::string>{"head_tiled_again"});
}

TEST_CASE("unwritten elements may hold NaN, a constant or junk, but explain nothing alone") {
  const std::vector<Mistake> table = local_table();
  Record capture = capture_of(kPrefill, {&kTailUnwritten});
  const call::Tensor spoilt = capture.outputs.at("o");
  const auto fill = [&](auto&& content) {
    call::Tensor& o = capture.outputs.at("o");
    for (std::int64_t i = 0; i < o.size(); ++i) {
      if (std::isnan(spoilt[i])) o.set(i, content(i));
    }
    return diagnosis_of(capture, table);
  };
  for (const double constant : {0.0, -1.0}) {
    const Diagnosis d = fill([&](std::int64_t) { return constant; });
    REQUIRE(!d.explanations.empty());
    CHECK(d.explanations[0].name() == "v_tail_unwritten");
    CHECK(d.explanations[0].explains);
  }
  const auto junk = [](std::int64_t i) { return 3.0 + std::sin(static_cast<double>(i)); };
  REQUIRE(!fill(junk).explanations.empty());
  CHECK(fill(junk).explanations[0].explains);

  // A mistake that writes nothing at all explains no junk.
  const Mistake nothing{.name = "nothing_written",
                        .group = "test",
                        .meaning = "writes nothing",
                        .applies = always,
                        .commit = [](const Record& r, const Kernel& kernel) {
                          TensorMap outputs = kernel(r);
                          for (auto& [name, t] : outputs) {
                            for (std::int64_t i = 0; i < t.size(); ++i) {
                              t.set(i, calls::kUnwritten);
                            }
                          }
                          return outputs;
                        }};
  Record all_junk = make_call(kPrefill);
  all_junk.outputs = capture_of(kPrefill, {}).outputs;
  for (auto& [name, t] : all_junk.outputs) {
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, junk(i));
  }
  CHECK(std::ranges::none_of(diagnosis_of(all_junk, std::vector{nothing}).explanations,
                             &Explanation::explains));
}

}  // namespace
}  // namespace goldenrule::explain::test
