// SPDX-License-Identifier: Apache-2.0
//
// Scenario lines: what they mean, what they refuse.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/delta_scenario.hpp"
#include "reference/serving/mistakes.hpp"
#include "reference/serving/simulate.hpp"

using namespace goldenrule;
using cases::parse_scenario;

TEST_CASE("a scenario line has one form, and the suites are of such lines") {
  const std::string line =
      "op=kda requests=6 calls=40 H=1 HV=2 K=16 V=8 state=bf16 T=3 mtp=scatter preempt=zero "
      "seed=7 mistake=slot_not_reset";
  CHECK(cases::canonical(parse_scenario(line)) == line);
  CHECK(cases::canonical(parse_scenario("seed=7 V=8 K=16 HV=2 H=1 io=bf16 block=16 calls=1 "
                                        "requests=1 op=gdn")) ==
        "op=gdn requests=1 calls=1 H=1 HV=2 K=16 V=8 seed=7");
  std::set<std::string> names;
  for (const std::string& name : cases::list_scenario_suites()) {
    const cases::ScenarioSuite suite = cases::load_scenarios(name);
    CHECK_FALSE(suite.description.empty());
    for (const cases::Scenario& s : suite.scenarios) {
      CHECK(cases::canonical(parse_scenario(cases::canonical(s))) == cases::canonical(s));
      CHECK(s.mistake.empty());
      names.insert(serving::chain_name(s));
    }
  }
  CHECK(names.size() == 8 + 36 + 8 + 2 + 2 + 1);
}

TEST_CASE("every key of a scenario line is listed with its meaning and its default") {
  const std::string good = "op=gdn requests=2 calls=4 H=1 HV=2 K=16 V=8";
  std::string known;
  for (const cases::ScenarioKey& key : cases::scenario_keys()) {
    CAPTURE(key.name);
    CHECK_FALSE(key.meaning.empty());
    known += (known.empty() ? "" : ", ") + key.name;
    if (key.always_given) {
      CHECK(good.find(key.name + "=") != std::string::npos);
      CHECK(key.standard.empty());
    } else if (!key.standard.empty()) {  // given, it is the same scenario
      CHECK(cases::canonical(parse_scenario(good + " " + key.name + "=" + key.standard)) == good);
    }
    const auto names_all = [&](const auto& values) {
      for (const std::string_view value : values)
        CHECK(key.meaning.find(value) != std::string::npos);
    };
    if (key.name == "mtp") names_all(call::EnumNames<cases::MtpForm>::kNames);
    if (key.name == "preempt") names_all(call::EnumNames<cases::Preemption>::kNames);
  }
  CHECK_THROWS_WITH_AS(
      static_cast<void>(parse_scenario(good + " nonsense=1")),
      ("scenario line: expected a key out of " + known + ", actual 'nonsense'").c_str(), Error);
}

TEST_CASE("a scenario that cannot be is refused") {
  const std::string good = "op=gdn requests=2 calls=4 H=1 HV=2 K=16 V=8 ";
  CHECK_NOTHROW(static_cast<void>(parse_scenario(good)));
  for (const char* more : {"requests=2",
                           "mode=decode",
                           "T=0",
                           "T=65",
                           "rollback=1",
                           "T=3 rollback=1 mtp=replay",
                           "tree=1",
                           "T=3 tree=2",
                           "block=0 share=1",
                           "block=0 preempt=snapshot",
                           "pad_slot=0",
                           "disable_state_update=1",
                           "pattern=nonsense",
                           "prompt=0",
                           "output=-1",
                           "mtp=maybe",
                           "graph=0",
                           "transfer=2",
                           "pool=-1",
                           "cache=-1",
                           "cache=1025",
                           "T=3 tree=1 cache=4"}) {
    CAPTURE(more);
    CHECK_THROWS_AS(static_cast<void>(parse_scenario(good + more)), Error);
  }
  // Each key within its range, and together more tokens than are made.
  CHECK_NOTHROW(static_cast<void>(
      parse_scenario("op=gdn requests=4096 calls=4 H=1 HV=2 K=16 V=8 prompt=1000 output=24")));
  CHECK_THROWS_WITH_AS(
      static_cast<void>(
          parse_scenario("op=gdn requests=4096 calls=4 H=1 HV=2 K=16 V=8 prompt=1000 output=25")),
      "scenario line: requests * (prompt + output): expected 1 to 4194304, actual 4198400", Error);
  CHECK_THROWS_AS(static_cast<void>(parse_scenario("op=gdn requests=2 calls=4 H=1 HV=2 K=16")),
                  Error);
  CHECK_THROWS_AS(static_cast<void>(parse_scenario("op=gdn requests=2 calls=4 H=2 HV=3 K=16 V=8")),
                  Error);
  CHECK_THROWS_AS(static_cast<void>(cases::load_scenarios("smoke")), Error);
  CHECK_THROWS_AS(static_cast<void>(serving::find_server_mistake("nonsense")), Error);
}
