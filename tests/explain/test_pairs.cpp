// SPDX-License-Identifier: Apache-2.0
//
// Pairs that few value channels refute, and those that are not made at all.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "reference/delta/mistakes/table.hpp"
#include "reference/explain/few_lanes.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// A failing capture as a search sees it.
struct Failing {
  explicit Failing(const Record& record)
      : contract(delta::default_contract(record)),
        judged(verdict::judgement(delta::slice(), record,
                                  {.contract = contract, .precision = scalar::Precision::kDouble})),
        failures(find_failures(judged.record, judged.contract, judged.expected)),
        trial(make_capture(judged)),
        lanes(trial, failures) {}

  [[nodiscard]] Match match(const Hypothesis& h) const {
    const auto prediction = trial.predictor.predict(h, SpreadBy::kScaling);
    return prediction ? trial.matcher.match(*prediction) : Match{};
  }

  contract::Contract contract;
  verdict::Judgement judged;
  std::vector<Failures> failures;
  Trial trial;
  FewLanes lanes;
};

TEST_CASE("pairs: what explains the whole call is admitted, most others are refuted on few lanes") {
  const std::vector<Mistake> table = local_table();
  int refuted = 0;
  int all = 0;
  int planted = 0;
  for (const std::string& line : {kDecode, kPrefill, kMtp}) {
    const Record call = make_call(line);
    for (const Mistake& a : table) {
      for (const Mistake& b : table) {
        if (&a == &b || !a.applies(call) || !b.applies(call)) continue;
        const Record record = capture_of(line, {&a, &b});
        Failing failing(record);
        if (failing.trial.matcher.match_right_call().failing == 0) continue;
        CAPTURE(line);
        CAPTURE(std::string(a.name));
        CAPTURE(std::string(b.name));
        CHECK(failing.lanes.admits({&a, &b}));
        ++planted;
        for (const Mistake& c : table) {
          for (const Mistake& d : table) {
            if (&c == &d || !c.applies(call) || !d.applies(call)) continue;
            ++all;
            if (failing.lanes.admits({&c, &d})) continue;
            ++refuted;
            CAPTURE(std::string(c.name));
            CAPTURE(std::string(d.name));
            const Match match = failing.match({&c, &d});
            CHECK_FALSE((match.failing == 0 && match.accounted >= kAccounted));
          }
        }
      }
    }
  }
  MESSAGE("planted ", planted, ", refuted ", refuted, " of ", all);
  CHECK(planted > 20);
  CHECK(refuted > all / 10);
}

// Value channel v of o is written to v - 1: on a cut its neighbour is another one.
TEST_CASE("pairs: a mistake that joins value channels is not judged on few of them") {
  const Mistake shifted{.name = "values_shifted",
                        .group = "test",
                        .meaning = "writes each value channel of o to the place before it",
                        .applies = always,
                        .commit = [](const Record& r, const Kernel& kernel) {
                          TensorMap outputs = kernel(r);
                          call::Tensor& o = outputs.at("o");
                          const call::Tensor right = o;
                          const std::int64_t V = o.shape().back();
                          for (std::int64_t i = 0; i < o.size(); ++i) {
                            o.set(i, right[i / V * V + (i + 1) % V]);
                          }
                          return outputs;
                        }};
  Failing failing(capture_of(kDecode, {&shifted, &kScaleMissing}));
  CHECK(failing.lanes.admits({&shifted, &kScaleMissing}));
  CHECK(failing.lanes.admits({&shifted, &kHeadTiled}));
  CHECK_FALSE(failing.lanes.admits({&kScaleMissing, &kHeadTiled}));
}

// The final states are |2 x|: two mistakes, of which neither is a permutation or made in blocks,
// and o is right.
TEST_CASE("pairs: mistakes that break what is right are in none") {
  static constexpr auto change_states = [](const Record& r, const Kernel& kernel,
                                           double (*f)(double)) {
    TensorMap outputs = kernel(r);
    call::Tensor& states = outputs.at("final_state");
    for (std::int64_t i = 0; i < states.size(); ++i) states.set(i, f(states[i]));
    return outputs;
  };
  const Mistake doubled{.name = "state_doubled",
                        .group = "test",
                        .meaning = "doubles the final state",
                        .applies = always,
                        .commit = [](const Record& r, const Kernel& kernel) {
                          return change_states(r, kernel, [](double x) { return 2.0 * x; });
                        }};
  const Mistake absolute{.name = "state_absolute",
                         .group = "test",
                         .meaning = "stores sizes",
                         .applies = always,
                         .commit = [](const Record& r, const Kernel& kernel) {
                           return change_states(r, kernel, [](double x) { return std::fabs(x); });
                         }};
  std::vector<Mistake> table = local_table();
  table.push_back(doubled);
  table.push_back(absolute);
  const Diagnosis d = diagnosis_of(capture_of(kPrefill, {&doubled, &absolute}), table);
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].explains);
  CHECK(d.explanations[0].mistakes.size() == 2);
  CHECK(d.explanations[0].told_by > 0);
  // Of the other mistakes that can be made in this call each changes o.
  CHECK(d.possible > 5);
  CHECK(d.possible_pairs == 2);
}

}  // namespace
}  // namespace goldenrule::explain::test
