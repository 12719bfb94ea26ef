// SPDX-License-Identifier: Apache-2.0
//
// Trees of drafts against a recurrence on the tree itself, with the states of all tokens at hand:
// the oracle unfolds the paths instead. Both run in double; the bound is the oracle's radius and as
// much again for the recurrence here, which makes the same operations in the same order.
#include <doctest/doctest.h>

#include <cmath>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/slice.hpp"

using namespace goldenrule;

namespace {

struct Check {
  const verdict::Exact& exact;
  std::int64_t compared = 0;

  void operator()(std::size_t at, double x) {
    ++compared;
    REQUIRE(std::fabs(exact.golden[at] - x) <= 2.0 * static_cast<double>(exact.radius[at]));
  }
};

// S_t from S_parent, o_t, and where the plan wants S_t.
void check_lane(const call::Record& record, const call::Plan& plan, const call::Sequence& row,
                std::int64_t head, const verdict::Expectations& expected, std::int64_t& compared) {
  const call::Dims& d = plan.dims;
  const delta::CallInputs inputs(record);
  const delta::OutputIndex index(record, d);
  const auto lane =
      delta::prepare_lane<double>(record, d, inputs, row.first_token, row.token_count, head);
  const auto v = delta::lane_values(inputs, d, index, row, head);
  std::vector<delta::Matrix<double>> states;
  Check check_o{expected.outputs.at("o").exact};
  for (std::int64_t t = 0; t < row.token_count; ++t) {
    const std::int64_t parent = row.parents[static_cast<std::size_t>(t)];
    delta::Matrix<double> state = parent < 0 ? delta::lane_start(inputs, d, index, row, head)
                                             : states[static_cast<std::size_t>(parent)];
    for (std::int64_t x = 0; x < d.V; ++x) {
      double predicted = 0.0;
      for (std::int64_t i = 0; i < d.K; ++i) {
        state(i, x) *=
            lane.alpha[static_cast<std::size_t>(t * lane.gates + (lane.gates == 1 ? 0 : i))];
        predicted += state(i, x) * lane.k_row(t)[i];
      }
      const double delta = lane.beta[static_cast<std::size_t>(t)] * (v(t, x) - predicted);
      double o = 0.0;
      for (std::int64_t i = 0; i < d.K; ++i) {
        state(i, x) += lane.k_row(t)[i] * delta;
        o += state(i, x) * lane.q_row(t)[i];
      }
      check_o(index.o(row.first_token + t, head, x), o);
    }
    states.push_back(std::move(state));
  }
  compared += check_o.compared;
  for (const call::Snapshot& s : row.snapshots) {
    if (s.after == 0) continue;
    Check check{expected.outputs.at(std::string(call::name_of(s.target))).exact};
    for (std::int64_t i = 0; i < d.K; ++i) {
      for (std::int64_t x = 0; x < d.V; ++x) {
        check(index(s.block, head, i, x), states[static_cast<std::size_t>(s.after - 1)](i, x));
      }
    }
    compared += check.compared;
  }
}

}  // namespace

TEST_CASE("trees: every token is one step from the state of its parent") {
  for (const char* line :
       {"op=gdn mode=mtp B=4 T=9 H=1 HV=2 K=16 V=8 slots=padded tree=mixed accepted=mixed",
        "op=kda mode=mtp lens=5,0,16,3 H=1 HV=2 K=16 V=9 tree=mixed kept=buffer state_layout=kv",
        "op=gdn mode=mtp lens=5,7,8,3 H=1 HV=1 K=1 V=1 slots=scatter_padded tree=mixed",
        "op=kda mode=mtp B=3 T=6 H=2 HV=4 K=16 V=8 tree=mixed track=mixed accepted=mixed",
        "op=gdn mode=mtp B=3 T=6 H=1 HV=2 K=16 V=8 tree=mixed disable_state_update=1"}) {
    CAPTURE(line);
    const call::Record record = cases::make_record(cases::parse(line));
    const call::Plan plan = call::make_plan(record, true);
    const auto expected = delta::slice().evaluate(record, scalar::Precision::kDouble, {});
    std::int64_t compared = 0;
    for (const call::Sequence& row : plan.sequences) {
      for (std::int64_t head = 0; head < plan.dims.HV && !row.padded; ++head) {
        check_lane(record, plan, row, head, expected, compared);
      }
    }
    CHECK(compared > 0);
  }
}

// A second slot may take the state of the very token whose state is the final one.
TEST_CASE("trees: two slots of one token") {
  call::Record record = cases::make_record(cases::parse(
      "op=gdn mode=mtp B=1 T=5 H=1 HV=2 K=16 V=8 tree=mixed track=mixed accepted=mixed"));
  record.inputs["accepted_tokens"].set(0, 3);
  record.inputs["checkpoint_tokens"].set(0, 3);
  const auto expected = delta::slice().evaluate(record, scalar::Precision::kDouble, {});
  const std::vector<double>& pool = expected.outputs.at("final_state").exact.golden;
  const std::size_t block = 2 * 16 * 8;
  const auto second = static_cast<std::size_t>(record.inputs.at("checkpoint_state_indices")[0]);
  REQUIRE(second != 0);
  for (std::size_t i = 0; i < block; ++i) REQUIRE(pool[i] == pool[second * block + i]);
  CHECK(pool[0] != record.inputs.at("initial_state")[0]);
}

// A chain written as a tree is the chain, to the bit.
TEST_CASE("trees: a chain is a tree") {
  const call::Record chain = cases::make_record(
      cases::parse("op=kda mode=mtp lens=5,0,3 H=1 HV=2 K=16 V=8 slots=separate accepted=mixed"));
  call::Record tree = chain;
  tree.inputs["parent_tokens"] =
      call::Tensor(call::DType::kI32, {8}, std::vector<double>{-1, 0, 1, 2, 3, -1, 0, 1});
  const auto a = delta::slice().evaluate(chain, scalar::Precision::kDouble, {});
  const auto b = delta::slice().evaluate(tree, scalar::Precision::kDouble, {});
  REQUIRE(a.outputs.size() == 3);
  for (const auto& [name, e] : a.outputs) {
    CAPTURE(name);
    CHECK(e.exact.golden == b.outputs.at(name).exact.golden);
    CHECK(e.exact.radius == b.outputs.at(name).exact.radius);
    CHECK(e.exact.touched == b.outputs.at(name).exact.touched);
  }
}
