// SPDX-License-Identifier: Apache-2.0
//
// How much a verdict may compute: what is counted, how many runs a budget is given for it, and what
// is refused before it begins.
#include <doctest/doctest.h>

#include <string>

#include "fixtures/call/error.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/oracle/work.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"
#include "reference/verdict/work.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using delta::Runs;

namespace {

const contract::Contract& chunked() { return contract::find_contract("chunk64_f32"); }

struct Call {
  explicit Call(const std::string& line)
      : record(record_of(line)), plan(call::make_plan(record, true)) {}

  [[nodiscard]] Runs runs() const { return delta::runs_for(record, plan, chunked()); }
  [[nodiscard]] double steps() const { return delta::steps_of_runs(record, plan, chunked()); }

  call::Record record;
  call::Plan plan;
};

}  // namespace

TEST_CASE("work: steps are those of the tokens that are computed") {
  const Call prefill("op=gdn mode=prefill lens=7,0,5 H=1 HV=2 K=32 V=16 gate=log");
  CHECK(delta::steps_of(prefill.record, prefill.plan, 0) == 2.0 * 12 * 32 * 16);
  CHECK(delta::steps_of(prefill.record, prefill.plan, 6) ==
        2.0 * 12 * (32 * 16 + 6 * (32 + 16 + 2.0)));
  const Call narrow("op=gdn mode=prefill lens=12 H=1 HV=1 K=32 V=1 gate=log");
  CHECK(delta::steps_of(narrow.record, narrow.plan, 0) == 12.0 * 32 * 8);  // a tile is 8 wide
  // Each token of a tree may have all others before it.
  const Call tree("op=gdn mode=mtp B=2 T=4 H=1 HV=1 K=16 V=16 tree=mixed");
  CHECK(delta::steps_of(tree.record, tree.plan, 0) == 2.0 * 10 * 16 * 16);
}

TEST_CASE("work: a row of few values has more runs, as long as they are cheap") {
  const auto runs_of = [](const std::string& shape) {
    return Call("op=gdn mode=prefill gate=log " + shape).runs().all();
  };
  CHECK(runs_of("lens=20 H=1 HV=1 K=16 V=64") == delta::kUsualRuns);
  CHECK(runs_of("lens=20 H=1 HV=1 K=16 V=4") == 128);
  CHECK(runs_of("lens=20 H=1 HV=1 K=16 V=1") == 512);
  CHECK(runs_of("lens=784 H=1 HV=4 K=128 V=1") == 128);
  const Call large("op=gdn mode=prefill lens=4000 H=1 HV=8 K=128 V=1 gate=log");
  CHECK(large.runs().all() == 64);
  CHECK(large.steps() * 64 > delta::kSpreadSteps);
  // A row of one value says nothing that its element does not.
  CHECK(delta::multiple_for(100, 64, 1) > 1.4 * delta::multiple_for(100, 64, 2));
  CHECK(delta::multiple_for(100, 64, 2) == delta::multiple_for(100, 64, 128));
}

TEST_CASE("work: what all parts of a verdict take is refused before the one that is too much") {
  const Call call("op=gdn mode=prefill lens=20 H=1 HV=1 K=16 V=16 gate=log");
  call::Record record = call.record;
  record.outputs = delta::slice().emulate(record, chunked(), 1);
  const auto judge = [&](double most) {
    const verdict::WorkLimited limited({.core_seconds = most});
    return verdict::judge_record(delta::slice(), record, {.contract = chunked()}).verdict;
  };
  const double evaluation =
      delta::evaluation_seconds(record, call.plan, 0, scalar::Precision::kDouble);
  const double runs = delta::slice().grant_seconds(record, chunked());
  CHECK(runs == delta::run_seconds(call.steps() * call.runs().all()));
  CHECK(judge(evaluation + runs) == verdict::Verdict::kWithinBudget);
  for (const double most : {0.5 * evaluation, evaluation, evaluation + 0.9 * runs}) {
    try {
      static_cast<void>(judge(most));
      FAIL("not refused");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUnsafe);
      CHECK_MESSAGE(error.expected().find("(--work)") != std::string::npos, error.what());
    }
  }
}

TEST_CASE("work: each tier and each token more takes longer") {
  using scalar::Precision;
  const Call call("op=kda mode=decode B=2 H=1 HV=2 K=16 V=8");
  const Call more("op=kda mode=decode B=3 H=1 HV=2 K=16 V=8");
  double before = 0.0;
  for (const Precision tier : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    const double seconds = delta::evaluation_seconds(call.record, call.plan, 0, tier);
    CHECK(seconds > before);
    CHECK(delta::evaluation_seconds(more.record, more.plan, 0, tier) ==
          doctest::Approx(1.5 * seconds));
    before = seconds;
  }
}
