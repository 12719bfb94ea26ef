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

// Value channel v of o is written to V - 1 - v: on a cut it goes elsewhere.
TEST_CASE("pairs: a mistake that joins value channels is not judged on few of them") {
  const Mistake reversed{.name = "values_reversed",
                         .group = "test",
                         .meaning = "writes the value channels of o backwards",
                         .applies = always,
                         .commit = [](const Record& r, const Kernel& kernel) {
                           TensorMap outputs = kernel(r);
                           call::Tensor& o = outputs.at("o");
                           const call::Tensor right = o;
                           const std::int64_t V = o.shape().back();
                           for (std::int64_t i = 0; i < o.size(); ++i) {
                             o.set(i, right[i / V * V + V - 1 - i % V]);
                           }
                           return outputs;
                         }};
  Failing failing(capture_of(kDecode, {&reversed, &kScaleMissing}));
  CHECK(failing.lanes.admits({&reversed, &kScaleMissing}));
  CHECK(failing.lanes.admits({&reversed, &kHeadTiled}));
  CHECK_FALSE(failing.lanes.admits({&kScaleMissing, &kHeadTiled}));
}

// The final states are those of other sequences, times a number: two mistakes, and o is right.
TEST_CASE("pairs: mistakes that break what is right are in none") {
  const Mistake doubled{.name = "state_doubled",
                        .group = "test",
                        .meaning = "doubles the final state",
                        .applies = always,
                        .commit = [](const Record& r, const Kernel& kernel) {
                          TensorMap outputs = kernel(r);
                          call::Tensor& states = outputs.at("final_state");
                          for (std::int64_t i = 0; i < states.size(); ++i) {
                            states.set(i, 2.0 * states[i]);
                          }
                          return outputs;
                        }};
  const Mistake shifted{.name = "state_of_next_head",
                        .group = "test",
                        .meaning = "stores the state of the next head",
                        .applies = always,
                        .commit = [](const Record& r, const Kernel& kernel) {
                          TensorMap outputs = kernel(r);
                          call::Tensor& states = outputs.at("final_state");
                          const call::Tensor right = states;
                          const std::int64_t n = states.shape()[2] * states.shape()[3];
                          const std::int64_t heads = states.shape()[1];
                          for (std::int64_t i = 0; i < states.size(); ++i) {
                            const std::int64_t head = i / n % heads;
                            const std::int64_t from = (head + 1) % heads;
                            states.set(i, right[i + (from - head) * n]);
                          }
                          return outputs;
                        }};
  // Nothing of a half of the error is left by one of them alone.
  std::vector<Mistake> table = local_table();
  table.push_back(doubled);
  table.push_back(shifted);
  const Diagnosis d = diagnosis_of(capture_of(kPrefill, {&doubled, &shifted}), table);
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].explains);
  CHECK(d.explanations[0].mistakes.size() == 2);
  // Of six mistakes that can be made in this call four change o.
  CHECK(d.possible_pairs == 2);
}

}  // namespace
}  // namespace goldenrule::explain::test
