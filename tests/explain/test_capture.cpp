// SPDX-License-Identifier: Apache-2.0
//
// A cut of a capture is the capture of the smaller call.
#include <doctest/doctest.h>

#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/capture.hpp"
#include "reference/verdict/expectation.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// The expectation that was cut out must be that of the call that was cut out, and a right capture
// must stay right.
void check_cut(const std::string& line, const Cut& what, bool keeps_states) {
  INFO(line);
  const Record record = capture_of(line, {});
  const contract::Contract& contract = delta::default_contract(record);
  const auto judgement = verdict::judgement(
      delta::slice(), record, {.contract = contract, .precision = scalar::Precision::kDouble});
  const Capture part = cut(make_capture(judgement), what);
  CHECK(part.outputs.contains("final_state") == keeps_states);
  Record small = part.call;
  small.outputs = part.outputs;
  CHECK_NOTHROW((void)call::validate(small));
  const auto again = verdict::expect(delta::slice(), small, contract, scalar::Precision::kDouble);
  for (const auto& [name, expected] : part.expected.outputs) {
    INFO(name);
    const verdict::Expected& e = again.outputs.at(name);
    CHECK(expected.exact.shape == e.exact.shape);
    REQUIRE(expected.exact.golden.size() == e.exact.golden.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
      worst = std::max(worst, std::fabs(e.exact.golden[i] - expected.exact.golden[i]));
    }
    CHECK(worst < 1e-14);
    CHECK(expected.exact.radius.size() == e.exact.radius.size());
    CHECK(expected.grant.spread.size() == e.grant.spread.size());
  }
  // A cut through the tokens has no final state.
  std::vector<std::string> wanted;
  for (const auto& [name, tensor] : small.outputs) wanted.push_back(name);
  const auto verdict =
      verdict::judgement(
          delta::slice(), small,
          {.contract = contract, .precision = scalar::Precision::kDouble, .wanted = wanted})
          .report.verdict;
  CHECK(verdict::is_pass(verdict));
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
