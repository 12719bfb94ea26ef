// SPDX-License-Identifier: Apache-2.0
//
// States on the way and pools of a prefill call, against calls that have neither: the state after p
// tokens is the final state of a sequence that ends there, and a sequence on a pool is one with a
// state of its own. The recurrence is the same, so the bits of double are.
#include <doctest/doctest.h>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/calls/segments.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using scalar::Precision;

namespace {

constexpr const char* kLines[] = {
    "op=gdn mode=prefill lens=13,0,1,20,9 H=1 HV=2 K=16 V=8 gate=log h0=1 checkpoints=listed",
    "op=kda mode=prefill lens=13,0,1,20 H=2 HV=2 K=8 V=9 slots=padded checkpoints=before every=4",
    "op=kda mode=prefill lens=13,0,1,20 H=1 HV=2 K=8 V=5 state=bf16 slots=separate_padded "
    "checkpoints=continued every=5 state_layout=kv gate=bounded",
    "op=gdn mode=prefill lens=12,4,7 H=1 HV=1 K=8 V=8 pad_slot=0 slots=padded checkpoints=after "
    "every=4 gate=log2"};

using goldenrule::cases::record_of;

std::int64_t block_size(const call::Dims& d) { return d.HV * d.state_size(); }

// The outputs of the first `tokens` tokens of sequence `s` alone.
call::TensorMap prefix(const call::Record& record, const call::Sequence& s, std::int64_t tokens) {
  const calls::Segment segment{s.first_token, tokens, s.start_block};
  return calls::run_segments(record, verdict::exact_kernel(delta::slice()), std::span(&segment, 1));
}

void check_block(const call::Tensor& actual, std::int64_t block, const call::Tensor& expected,
                 std::int64_t size) {
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    different += actual[block * size + i] == expected[i] ? 0 : 1;
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("checkpoints: every state is that of a sequence which ends there") {
  for (const char* line : kLines) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const call::Plan plan = call::make_plan(record, true);
    const call::TensorMap outputs = verdict::exact_kernel(delta::slice())(record);
    std::int64_t states = 0;
    for (const call::Sequence& s : plan.sequences) {
      for (const call::Snapshot& snapshot : s.snapshots) {
        CAPTURE(s.first_token);
        CAPTURE(snapshot.after);
        const call::TensorMap alone = prefix(record, s, snapshot.after);
        check_block(outputs.at(std::string(call::name_of(snapshot.target))), snapshot.block,
                    alone.at("final_state"), block_size(plan.dims));
        ++states;
      }
      if (s.padded) continue;
      const call::TensorMap alone = prefix(record, s, s.token_count);
      for (std::int64_t i = 0; i < alone.at("o").size(); ++i) {
        REQUIRE(outputs.at("o")[s.first_token * plan.dims.HV * plan.dims.V + i] ==
                alone.at("o")[i]);
      }
    }
    CHECK(states >= 6);
  }
}

TEST_CASE("checkpoints: a padded sequence has zeros, no states, and leaves the pool alone") {
  for (const char* line : {kLines[1], kLines[3]}) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const call::Plan plan = call::make_plan(record, true);
    const verdict::Expectations e = delta::slice().evaluate(record, Precision::kQuad, {});
    const verdict::Exact& o = e.outputs.at("o").exact;
    const verdict::Exact& kept = e.outputs.at("checkpoints").exact;
    const verdict::Exact& pool = e.outputs.at("final_state").exact;
    const call::Tensor& before = record.inputs.at("initial_state");
    std::vector<bool> written(static_cast<std::size_t>(plan.dims.slots));
    std::int64_t row = 0;
    std::int64_t padded = 0;
    for (const call::Sequence& s : plan.sequences) {
      for (const call::Snapshot& snapshot : s.snapshots) {
        if (snapshot.target == call::Target::kFinalState) {
          written[static_cast<std::size_t>(snapshot.block)] = true;
        }
      }
      for (std::size_t i = 0; i < s.checkpoints.size(); ++i, ++row) {
        const std::int64_t at = row * block_size(plan.dims);
        CHECK(kept.is_defined(static_cast<std::size_t>(at)) != s.padded);
      }
      if (!s.padded) continue;
      ++padded;
      const std::int64_t width = plan.dims.HV * plan.dims.V;
      for (std::int64_t i = 0; i < s.token_count * width; ++i) {
        const auto at = static_cast<std::size_t>(s.first_token * width + i);
        REQUIRE(o.golden[at] == 0.0);
        REQUIRE(o.radius[at] == 0.0F);
      }
    }
    CHECK(padded > 0);
    CHECK(row == plan.dims.checkpoints);
    for (std::int64_t slot = 0; slot < plan.dims.slots; ++slot) {
      if (written[static_cast<std::size_t>(slot)]) continue;
      for (std::int64_t i = slot * block_size(plan.dims); i < (slot + 1) * block_size(plan.dims);
           ++i) {
        REQUIRE(pool.golden[static_cast<std::size_t>(i)] == before[i]);
      }
    }
  }
}

TEST_CASE("checkpoints: wider tiers lie within the radius of double") {
  for (const char* line : kLines) {
    CAPTURE(line);
    const call::Record record = record_of(line);
    const verdict::Expectations narrow = delta::slice().evaluate(record, Precision::kDouble, {});
    const verdict::Expectations wide = delta::slice().evaluate(record, Precision::kMulti, {});
    const verdict::Exact& a = narrow.outputs.at("checkpoints").exact;
    const verdict::Exact& b = wide.outputs.at("checkpoints").exact;
    std::int64_t outside = 0;
    for (std::size_t i = 0; i < a.golden.size(); ++i) {
      if (!a.is_defined(i)) continue;
      const double radius = static_cast<double>(a.radius[i]) + static_cast<double>(b.radius[i]);
      outside += std::fabs(a.golden[i] - b.golden[i]) <= radius ? 0 : 1;
    }
    CHECK(outside == 0);
    CHECK(a.max_radius() > 0.0);
  }
}
