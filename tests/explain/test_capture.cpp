// SPDX-License-Identifier: Apache-2.0
//
// A cut of a capture is the capture of the smaller call.
#include <doctest/doctest.h>

#include "reference/explain/capture.hpp"
#include "reference/oracle/evaluate.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// The expectation that was cut out must be that of the call that was cut out, and a right capture
// must stay right.
void check_cut(const std::string& line, const Cut& what, bool keeps_states) {
  INFO(line);
  const Record record = capture_of(line, {});
  const bounds::Contract& contract = bounds::default_contract(record);
  const auto judgement = verdict::judgement(record, contract, scalar::Precision::kDouble);
  const Capture part = cut(make_capture(record, contract, judgement.evaluation), what);
  CHECK(part.outputs.contains("final_state") == keeps_states);
  Record small = part.call;
  small.outputs = part.outputs;
  CHECK_NOTHROW((void)call::validate(small));
  const auto again =
      oracle::evaluate(small, scalar::Precision::kDouble,
                       {.certify = true, .contract = &contract, .intermediate_states = true});
  for (const auto& [name, expected] : part.expected.outputs) {
    INFO(name);
    const oracle::Expected& e = again.outputs.at(name);
    CHECK(expected.shape == e.shape);
    REQUIRE(expected.golden.size() == e.golden.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < e.golden.size(); ++i) {
      worst = std::max(worst, std::fabs(e.golden[i] - expected.golden[i]));
    }
    CHECK(worst < 1e-14);
    CHECK(expected.radius.size() == e.radius.size());
    CHECK(expected.spread.size() == e.spread.size());
  }
  // A cut through the tokens has no final state.
  std::vector<std::string> wanted;
  for (const auto& [name, tensor] : small.outputs) wanted.push_back(name);
  const auto verdict =
      verdict::judgement(small, contract, scalar::Precision::kDouble, wanted).report.verdict;
  CHECK((verdict == verdict::Verdict::kWithinBudget || verdict == verdict::Verdict::kExact));
}

TEST_CASE("value channels") {
  for (const std::string& line : {kDecode, kMtp, kPrefill, kMtp + " state_layout=kv"}) {
    check_cut(line, {.values = {0, 3, 17, 63}, .sequences = -1, .tokens = -1}, true);
  }
}

TEST_CASE("sequences and tokens of a prefill call") {
  check_cut(kPrefill, {.values = {}, .sequences = 2, .tokens = -1}, true);
  check_cut(kPrefill, {.values = {}, .sequences = -1, .tokens = 20}, false);
  check_cut(kPrefill, {.values = {1, 2}, .sequences = 1, .tokens = 70}, true);
}

}  // namespace
}  // namespace goldenrule::explain::test
