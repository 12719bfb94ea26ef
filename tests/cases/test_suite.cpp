// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/delta_case.hpp"
#include "fixtures/cases/delta_patterns.hpp"
#include "fixtures/cases/suite.hpp"

using goldenrule::Error;
using goldenrule::ErrorKind;
namespace call = goldenrule::call;
using namespace goldenrule::cases;

namespace {

std::string suite_refusal(std::string_view text) {
  try {
    (void)parse_suite("mine", text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// "{0,1,2}"
std::string counted(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text.append(i == 0 ? "{" : ",").append(std::to_string(i));
  return text.append("}");
}

std::int64_t total(const Suite& suite, std::int64_t (*measure)(const Case&)) {
  std::int64_t sum = 0;
  for (const Case& c : suite.cases) sum += measure(c);
  return sum;
}

}  // namespace

TEST_CASE("braces are a product, the leftmost varying slowest") {
  CHECK(expand("a=1 b=2") == std::vector<std::string>{"a=1 b=2"});
  CHECK(expand(" a={1,2} b=3 c={4,5}\r") ==
        std::vector<std::string>{"a=1 b=3 c=4", "a=1 b=3 c=5", "a=2 b=3 c=4", "a=2 b=3 c=5"});
  for (const char* bad :
       {"a={1,2", "a=1}", "a=}1{", "a={1,{2}}", "{a,b}=1", "a=x{1,2}", "a={1}2", "a={1,b={2,3}"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS((void)expand(bad), Error);
  }
}

TEST_CASE("braces stand for a bounded number of cases, and there are few of them") {
  const std::string hundred = counted(100);
  CHECK(expand("a=" + hundred + " b=" + hundred).size() == 10'000);
  CHECK_THROWS_AS((void)expand("a=" + hundred + " b=" + hundred + " c=" + hundred), Error);
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "a={1} ";
  CHECK_THROWS_AS((void)expand(many), Error);
  CHECK_THROWS_AS((void)expand(std::string(100'000, '{')), Error);
}

TEST_CASE("a suite text gives description and cases, and names the line of a mistake") {
  const Suite suite =
      parse_suite("mine",
                  "# SPDX-License-Identifier: Apache-2.0\n# What it is.\n# More.\n\n"
                  "op={gdn,kda} mode=decode B=1 H=1 HV=1 K=4 V={1,2}  # values\n");
  CHECK(suite.name == "mine");
  CHECK(suite.description == "What it is.");
  REQUIRE(suite.cases.size() == 4);
  CHECK(canonical(suite.cases[2]) == "op=kda mode=decode B=1 H=1 HV=1 K=4 V=1");

  CHECK(contains(suite_refusal("# only\n"), "at least one case"));
  CHECK(contains(suite_refusal("\nop=gdn mode=decode B=1 H=1 HV=1 K=4 V={1,0}\n"),
                 "suite mine, line 2"));
  CHECK(contains(suite_refusal("op=gdn mode=decode B=1 H=1 HV=1 K=4 V={1,2,1}\n"),
                 "every case once"));
}

TEST_CASE("the library carries its suites") {
  CHECK(list_suites() == std::vector<std::string>{
                             "smoke", "boundary", "stress", "mtp", "production", "attention_smoke",
                             "attention_boundary", "attention_stress", "backward_smoke",
                             "backward_boundary", "backward_stress", "draft_acceptance"});
  CHECK_THROWS_AS((void)load_suite("nonsense"), Error);
  for (const std::string& name : list_suites()) {
    CAPTURE(name);
    const Suite suite = load_suite(name);
    CHECK(suite.name == name);
    CHECK(suite.description.ends_with("."));
    CHECK(suite.cases.size() >= 10);
  }
}

TEST_CASE("canonical lines are fixed points, and stems are distinct over all suites") {
  std::set<std::string> lines;
  std::set<std::string> stems;
  for (const std::string& name : list_suites()) {
    for (const Case& c : load_suite(name).cases) {
      const std::string line = canonical(c);
      REQUIRE(canonical(parse(line)) == line);
      lines.insert(line);
      stems.insert(file_stem(c));
    }
  }
  CHECK(stems.size() == lines.size());
}

TEST_CASE("every case makes a record that a plan accepts") {
  for (const char* name : {"smoke", "boundary", "stress", "mtp"}) {
    for (const Case& c : load_suite(name).cases) {
      CAPTURE(canonical(c));
      const call::Record record = make_record(c);
      const call::Plan plan = call::make_plan(record, true);
      REQUIRE(std::ssize(plan.sequences) == row_count(c));
      REQUIRE(plan.dims.tokens == token_count(c));
      REQUIRE(plan.dims.slots == pool_size(c));
      REQUIRE(record.case_line == canonical(c));
      REQUIRE(record.outputs.empty());
    }
  }
}

// What the suites may cost: an oracle visits 5 million state elements a second and core, and
// `generate boundary` has five minutes on two cores; the files fit beside a checkout.
TEST_CASE("the suites stay within their means") {
  const Suite smoke = load_suite("smoke");
  CHECK(smoke.cases.size() <= 16);
  CHECK(total(smoke, step_count) < 5'000'000);
  const Suite boundary = load_suite("boundary");
  CHECK(total(boundary, step_count) < 400'000'000);
  CHECK(total(boundary, golden_bytes) < 600'000'000);
  const Suite stress = load_suite("stress");
  CHECK(total(stress, step_count) < 600'000'000);
  CHECK(total(stress, golden_bytes) < 600'000'000);
  for (const Suite* suite : {&boundary, &stress}) {
    const auto heavy = [](const Case& c) { return step_count(c) > 8'000'000; };
    CHECK(std::ranges::count_if(suite->cases, heavy) <= 2);
  }
}

TEST_CASE("stress has every pattern for both operations, in every mode that can express it") {
  std::set<std::string> found;
  for (const Case& c : load_suite("stress").cases) {
    found.insert(c.pattern + (c.op == call::Op::kKda ? " kda " : " gdn ") +
                 std::string(call::name_of(c.mode)));
  }
  for (const goldenrule::cases::DeltaPattern& f : goldenrule::cases::delta_patterns()) {
    const std::string name(f.name);
    for (const char* op : {" gdn ", " kda "}) {
      CAPTURE(name + op);
      CHECK(found.contains(name + op + "prefill"));
      CHECK(found.contains(name + op + "mtp"));
      const bool relates_tokens = name[0] == 'B' || name == "F" || name == "G" || name == "H";
      CHECK(found.contains(name + op + "decode") == !relates_tokens);
    }
  }
}

TEST_CASE("shards are disjoint, complete, ordered and even") {
  const Suite suite = load_suite("boundary");
  constexpr std::size_t kParts = 4;
  std::set<std::string> lines;
  std::size_t count = 0;
  for (std::size_t part = 1; part <= kParts; ++part) {
    const Suite share = shard(suite, part, kParts);
    count += share.cases.size();
    auto position = suite.cases.begin();
    for (const Case& c : share.cases) {
      const std::string line = canonical(c);
      lines.insert(line);
      position = std::find_if(position, suite.cases.end(),
                              [&](const Case& other) { return canonical(other) == line; });
      REQUIRE(position != suite.cases.end());
    }
    // Longest first is within the longest case of even.
    CHECK(total(share, step_count) * static_cast<std::int64_t>(kParts) <
          total(suite, step_count) + static_cast<std::int64_t>(kParts) * 9'000'000);
  }
  CHECK(count == suite.cases.size());
  CHECK(lines.size() == suite.cases.size());
  CHECK(shard(suite, 1, 1).cases.size() == suite.cases.size());
  // One case with more work than eight others together has a share of its own.
  const Suite uneven = parse_suite("uneven",
                                   "op=gdn mode=decode B=1 H=1 HV=1 K=4 V={1,2,3,4,5,6,7,8}\n"
                                   "op=gdn mode=decode B=1 H=1 HV=1 K=4 V=64\n");
  CHECK(shard(uneven, 1, 2).cases.size() == 1);
  CHECK(shard(uneven, 2, 2).cases.size() == 8);
  CHECK(shard(suite, 5000, 5000).cases.empty());
  CHECK_THROWS_AS((void)shard(suite, 0, 4), Error);
  CHECK_THROWS_AS((void)shard(suite, 5, 4), Error);
}

TEST_CASE("shards of the largest cases: their work together is beyond 2^63") {
  const std::string line = "op=gdn mode=prefill lens=262144 H=1 HV=1 K=262144 V=262144 seed=";
  const Suite suite = parse_suite("mine", line + counted(2000));
  CHECK(step_count(suite.cases[0]) == std::int64_t{1} << 54);
  CHECK(shard(suite, 1, 2).cases.size() == 1000);
  CHECK(shard(suite, 2, 2).cases.size() == 1000);
}
