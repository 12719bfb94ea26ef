// SPDX-License-Identifier: Apache-2.0
//
// The prefill kernels against the oracle: their cases of the suites and of case_lists.hpp, judged
// element by element under the contract of the kernel that serves the call.
#include "reference/delta/calls/rows.hpp"
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

bool is_prefill(call::Mode mode) { return mode == call::Mode::kPrefill; }

TEST_CASE("prefill boundary: every element within its budget") {
  check_suite("boundary", is_prefill);
}
TEST_CASE("prefill stress: every element within its budget") { check_suite("stress", is_prefill); }
TEST_CASE("prefill every K and V") { check_list("prefill: every K and V"); }
TEST_CASE("prefill every length and head group") { check_list("prefill: every length, heads"); }
/// From 4096 tokens on in segments.
TEST_CASE("prefill long sequences of few heads") {
  check_cases("segments", parse_list(R"(
op={gdn,kda} mode=prefill lens=70,4100,0,5 H=1 HV=2 K=128 V=128 slots=separate_padded index=i32
op={gdn,kda} mode=prefill lens=4608,33 H=1 HV=1 K=128 V=256 state=bf16 state_layout=kv h0=0
op={gdn,kda} mode=prefill lens=4500 H=1 HV=1 K=128 V=128 h0=1 gate=none pattern=C000
)"));
}
TEST_CASE("prefill every gate, beta and norm") { check_list("prefill: every gate, beta and norm"); }
TEST_CASE("prefill slots and checkpoints of records") {
  check_list("prefill: slots and checkpoints");
}
TEST_CASE("prefill every type, strides and alignment") {
  check_list("prefill: types, strides and alignment");
}

/// The case with other gates, judged.
template <class F>
void check_gates(const char* line, F&& gate) {
  for_each_case(line, [&](const LiveCase& c, const call::Record& original) {
    call::Record record = original;
    calls::change(record.inputs.at("g"), gate);
    LiveCall live(record, c.placement);
    record.contract = live.contract();
    record.outputs = outputs_of(live, canonical(c));
    Tally tally;
    CHECK(judge(record, false, tally) == "");
  });
}

// The decays of a chunk add up to -1e5, and what comes behind them differs by .01 a token.
TEST_CASE("prefill slow gates behind many hard ones") {
  REQUIRE_GPU();
  constexpr std::int64_t kHeads = 2;
  check_gates("op=gdn mode=prefill lens=130 H=1 HV=2 K={128,60} V=64 gate=log h0=1",
              [](std::int64_t i, double) { return i / kHeads % 64 < 40 ? -2600. : -.01; });
}
TEST_CASE("prefill gates of either sign") {
  REQUIRE_GPU();
  check_gates("op=gdn mode=prefill lens=130 H=1 HV=2 K={128,60} V=64 gate=linear h0=1",
              [](std::int64_t i, double x) { return i % 5 < 2 ? -x : x; });
}

}  // namespace
}  // namespace goldenrule::test
