// SPDX-License-Identifier: Apache-2.0
//
// Simulated chains and the judge of chains: an honest server passes, and every mistake of a server
// is seen, has its name, and shows in no call by itself.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "reference/chain/judge.hpp"
#include "reference/serving/chain_matrix.hpp"
#include "reference/serving/mistakes.hpp"
#include "reference/serving/simulate.hpp"
#include "reference/suites/slices.hpp"

using namespace goldenrule;

namespace {

std::vector<call::Record> records_of(const cases::Scenario& scenario) {
  std::vector<call::Record> records;
  serving::simulate(scenario, [&](chain::Call&& call) {
    CHECK(call.index == std::ssize(records));
    records.push_back(std::move(call.record));
    return true;
  });
  return records;
}

bool same_bits(const call::TensorMap& a, const call::TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !std::ranges::equal(tensor.bytes(), other->second.bytes()))
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a line gives the same chain twice, and a chain can be left early") {
  const cases::Scenario scenario = cases::load_scenarios("chains_smoke").scenarios.front();
  const std::vector<call::Record> once = records_of(scenario);
  const std::vector<call::Record> again = records_of(scenario);
  REQUIRE(once.size() == again.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    CHECK(same_bits(once[i].inputs, again[i].inputs));
    CHECK(same_bits(once[i].outputs, again[i].outputs));
  }
  int calls = 0;
  serving::simulate(scenario, [&](chain::Call&&) { return ++calls < 3; });
  CHECK(calls == 3);
}

TEST_CASE("every mistake of a server is seen and named, and no honest server is refused") {
  const serving::ChainMatrix matrix = serving::chain_matrix(
      {.scenarios = cases::load_scenarios("chains_smoke").scenarios, .mistakes = {}});
  for (const serving::ChainAlarm& alarm : matrix.false_alarms) {
    FAIL_CHECK(alarm.line << ": call " << alarm.finding.call << ": " << alarm.finding.text);
  }
  CHECK(matrix.rows.size() == serving::server_mistakes().size());
  for (const serving::ChainRow& row : matrix.rows) {
    CAPTURE(row.mistake->name);
    CHECK(row.made > 0);
    CHECK(row.alone == (row.mistake->in_call ? row.made : 0));
    for (const std::string& line : row.unseen) FAIL_CHECK("not seen: " << line);
    for (const std::string& line : row.unnamed) FAIL_CHECK("not named: " << line);
  }
  CHECK(matrix.holds());
}

TEST_CASE("narrow pools: what is restored in part, or from another position, has its name") {
  std::vector<cases::Scenario> scenarios;
  for (const char* state : {"bf16", "f16"}) {
    scenarios.push_back(cases::parse_scenario(
        "op=gdn requests=8 calls=60 H=1 HV=2 K=16 V=16 T=4 block=8 preempt=snapshot transfer=1 "
        "share=1 seed=2 state=" +
        std::string(state)));
  }
  const serving::ChainMatrix matrix =
      serving::chain_matrix({.scenarios = std::move(scenarios),
                             .mistakes = {"copy_bytes_for_elements", "snapshot_off_boundary"}});
  CHECK(matrix.false_alarms.empty());
  for (const serving::ChainRow& row : matrix.rows) {
    CAPTURE(row.mistake->name);
    CHECK(row.made == 2);
    for (const std::string& line : row.unseen) FAIL_CHECK("not seen: " << line);
    for (const std::string& line : row.unnamed) FAIL_CHECK("not named: " << line);
  }
}

TEST_CASE("an honest server may leave out the states of its decodes") {
  for (const cases::Scenario& scenario : cases::load_scenarios("chains_smoke").scenarios) {
    CAPTURE(cases::canonical(scenario));
    chain::Judge judge(suites::slice_of, {.only_chain = true});
    serving::simulate(scenario, [&](chain::Call&& call) {
      if (call.record.mode == call::Mode::kDecode && call::operation(call.record.op).has_states) {
        call::Tensor& pool = call.record.inputs.at("initial_state");
        call::Shape shape = pool.shape();
        shape.front() = 0;
        pool = call::Tensor(pool.dtype(), shape);
        call.record.outputs.erase("final_state");
      }
      for (const chain::Finding& finding : judge.add(call)) FAIL_CHECK(finding.text);
      return true;
    });
    CHECK(judge.finish().outputs_judged > 0);
  }
}
