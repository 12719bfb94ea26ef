// SPDX-License-Identifier: Apache-2.0
//
// Grants of a large call are estimates from few runs: an estimate that is too small by chance is
// made again before a kernel is called wrong, and one that is wrong stays so.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/backward/budget/grant.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/confirm.hpp"
#include "reference/verdict/verdict.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;

namespace {

using Confirm = void (*)(const call::Record&, const contract::Contract&, const call::TensorMap&,
                         verdict::Expectations&);

void confirm_delta(const call::Record& record, const contract::Contract& contract,
                   const call::TensorMap& outputs, verdict::Expectations& expected) {
  delta::confirm_by_emulation(record, call::make_plan(record, false), contract, outputs, expected);
}

// Elements out of budget in an output.
std::int64_t out_of(const std::string& name, const call::Tensor& output,
                    const verdict::Expectations& expected, const contract::Contract& contract) {
  return verdict::judge(name, output, expected.outputs.at(name), contract).out_of_budget;
}

// The grants of `name` are a fiftieth of what they are, as if few runs had said so by chance.
void check_confirmation(const verdict::Slice& slice, const std::string& line,
                        const std::string& name, Confirm confirm) {
  CAPTURE(line);
  call::Record record = cases::record_of(line);
  const contract::Contract& contract = slice.default_contract(record);
  record.outputs = calls::stored(record, contract, slice.emulate(record, contract, 7));
  verdict::Expectations expected =
      verdict::expect(slice, record, contract, scalar::Precision::kDouble);
  REQUIRE(out_of(name, record.outputs.at(name), expected, contract) == 0);
  for (float& s : expected.outputs.at(name).grant.spread) s *= 0.02F;
  verdict::Expectations estimated = expected;
  REQUIRE(out_of(name, record.outputs.at(name), expected, contract) > 0);

  confirm(record, contract, record.outputs, expected);
  CHECK(out_of(name, record.outputs.at(name), expected, contract) == 0);
  // What was granted is never lowered.
  const auto& before = estimated.outputs.at(name).grant.spread;
  const auto& after = expected.outputs.at(name).grant.spread;
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i] >= before[i]);

  // Of a wrong kernel no element passes that is wrong.
  call::TensorMap wrong = record.outputs;
  call::Tensor& output = wrong.at(name);
  std::int64_t changed = 0;
  for (std::int64_t i = 0; i < output.size(); i += 3) {
    output.set(i, 2.0 * output[i] + 1.0);
    ++changed;
  }
  confirm(record, contract, wrong, estimated);
  CHECK(out_of(name, output, estimated, contract) == changed);
}

}  // namespace

TEST_CASE("what few runs call out of budget is asked again before it is said") {
  check_confirmation(
      delta::slice(),
      "op=kda mode=prefill lens=70,33 H=2 HV=2 K=32 V=24 gate=bounded h0=1 pattern=A", "o",
      confirm_delta);
  check_confirmation(delta::slice(),
                     "op=gdn mode=prefill lens=70 H=1 HV=2 K=32 V=24 h0=1 pattern=A", "final_state",
                     confirm_delta);
  const std::string backward =
      "op=kda_backward mode=prefill lens=70,64 H=1 HV=2 K=32 V=24 h0=1 dstate=1 pattern=A";
  for (const char* name : {"dq", "dv", "dinitial_state"}) {
    check_confirmation(backward::slice(), backward, name, backward::confirm_groups);
  }
}

TEST_CASE("the parts with the fewest failing elements are asked first") {
  const std::vector<std::int64_t> counts{5, 0, 1, 3, 0, 1};
  const auto count = [&](std::int64_t i) { return counts[static_cast<std::size_t>(i)]; };
  CHECK(verdict::fewest_out(6, 3, count) == std::vector<std::int64_t>{2, 5, 3});
  CHECK(verdict::fewest_out(6, 9, count) == std::vector<std::int64_t>{2, 5, 3, 0});
  CHECK(verdict::fewest_out(6, -1, count).empty());
}
