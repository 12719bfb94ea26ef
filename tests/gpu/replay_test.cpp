// SPDX-License-Identifier: Apache-2.0
//
// Replay: calls that keep their tokens in rings in the place of states. Against the oracle, element
// by element; that a state folded from a ring is the one that would have been kept; what the
// cursors do to the bits; and cursors of any value.
#include <algorithm>
#include <limits>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/rows.hpp"
#include "tests/delta/emulation/folded_states.hpp"
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("replay: every shape, type and cursor") { check_list("replay"); }
TEST_CASE("replay: tuned shapes, every pattern of values") { check_list("replay, tuned shapes"); }

// Beside an f32 ring the states are nearly those that are kept; in bf16 what is kept is rounded.
TEST_CASE("replay: a folded state is the kept one within the budgets of both") {
  REQUIRE_GPU();
  std::int64_t compared = 0;
  double largest = 0.0;
  const RunKernel kernel = [](const call::Record& record, std::uint64_t /*run*/) {
    return outputs_of(record);
  };
  for (const std::string& line : cases::expand(
           "op={gdn,kda} mode=mtp B=4 T=5 H=1 HV=2 K={128,60} V=64 slots=permuted ring={io,f32} "
           "window=12 state_layout={vk,kv}")) {
    CAPTURE(line);
    const RingPair pair = pair_of(line);
    const contract::Contract& contract = contract::find_contract("recurrent_f32");
    for (const std::int64_t accepted : {2, 5}) {
      CAPTURE(accepted);
      const FoldComparison c = compare_folded(pair, contract, accepted, 1, kernel);
      CHECK(c.largest <= 1.0);
      largest = std::max(largest, c.largest);
      compared += c.compared;
    }
  }
  std::printf("%lld elements compared, largest difference %.3f of what is allowed\n",
              static_cast<long long>(compared), largest);
  CHECK(compared > 100'000);
}

/// Every shape of the kernels; with a gate per channel also two groups of pending tokens and whole
/// heads. (On a device of many multiprocessors few rows of whole heads are low tiles.) Calls of one
/// token have the same kernel: at most 17 places.
const std::string kBits =
    "op={gdn,kda} mode=mtp B=5 T=8 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} "
    "slots=permuted ring=io window=16 io=bf16\n"
    "op=kda mode=mtp B=5 T=8 H=1 HV=1 K=128 V=128 state_layout={vk,kv} state={f32,bf16} "
    "slots=permuted ring=io window=17 io=bf16";

TEST_CASE("replay: a token has the same bits however many follow it, a row beside any others") {
  REQUIRE_GPU();
  for_each_case(kBits, [](const LiveCase&, const call::Record& record) {
    const call::Tensor all = outputs_of(record).at("o");
    for (const std::int64_t T : {1, 3, 7}) {
      call::Record shorter = record;
      std::vector<std::int64_t> tokens;
      for (std::int64_t t = 0; t < T; ++t) tokens.push_back(t);
      take_inputs(shorter, call::axis::kToken, tokens);
      CHECK(first_difference("o", call::take(all, 1, tokens).bytes(),
                             outputs_of(shorter).at("o").bytes()) == "");
    }
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{3}, {4, 3, 0}}) {
      const call::Record some = calls::select_rows(record, call::make_plan(record, false), rows);
      CHECK(first_difference("o", call::take(all, 0, rows).bytes(),
                             outputs_of(some).at("o").bytes()) == "");
    }
  });
}

/// The call with every ring turned by `steps` places.
call::Record turned(const call::Record& record, std::int64_t steps) {
  call::Record other = record;
  const std::int64_t places = call::validate(record).ring_places;
  std::vector<std::int64_t> from;
  for (std::int64_t w = 0; w < places; ++w) from.push_back((w + places - steps) % places);
  for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g"}) {
    other.inputs.at(name) = call::take(record.inputs.at(name), 2, from);
  }
  call::Tensor& start = other.inputs.at("ring_start");
  for (std::int64_t b = 0; b < start.size(); ++b) {
    start.set(b, static_cast<double>((static_cast<std::int64_t>(start[b]) + steps) % places));
  }
  return other;
}

TEST_CASE("replay: bits know neither places nor what else a ring holds nor whether it is flushed") {
  REQUIRE_GPU();
  for_each_case(kBits, [](const LiveCase&, const call::Record& record) {
    const call::TensorMap outputs = outputs_of(record);
    const auto same_o = [&](const call::Record& other) {
      return first_difference("o", outputs.at("o").bytes(), outputs_of(other).at("o").bytes());
    };
    for (const std::int64_t steps : {1, 7, 15}) {
      CAPTURE(steps);
      const call::Record other = turned(record, steps);
      const call::TensorMap there = outputs_of(other);
      CHECK(first_difference("o", outputs.at("o").bytes(), there.at("o").bytes()) == "");
      CHECK(first_difference("final_state", outputs.at("final_state").bytes(),
                             there.at("final_state").bytes()) == "");
    }
    call::Record kept = record;
    kept.inputs.erase("ring_flush");
    CHECK(same_o(kept) == "");
    // NaN wherever no pending token is.
    call::Record spoiled = record;
    const call::Plan plan = call::make_plan(record, false);
    const std::int64_t places = plan.dims.ring_places;
    std::vector<bool> pending(static_cast<std::size_t>(plan.dims.rings * places));
    for (const call::Sequence& s : plan.sequences) {
      for (std::int64_t t = 0; t < s.replay.count; ++t) {
        pending[static_cast<std::size_t>(s.replay.ring * places + s.replay.place(t))] = true;
      }
    }
    for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g"}) {
      call::Tensor& ring = spoiled.inputs.at(name);
      for (std::int64_t i = 0; i < ring.size(); ++i) {
        if (!pending[place_of_element(ring.shape(), static_cast<std::size_t>(i))]) {
          ring.set(i, std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
    CHECK(same_o(spoiled) == "");
  });
}

TEST_CASE("replay: a flush of nothing leaves the state to the last bit, one without tokens too") {
  REQUIRE_GPU();
  for_each_case(kBits, [](const LiveCase&, call::Record record) {
    call::Tensor& state = record.inputs.at("initial_state");
    state.set(0, -0.0);
    for (const char* name : {"ring_count", "ring_flush"}) {
      call::Tensor& t = record.inputs.at(name);
      for (std::int64_t b = 0; b < t.size(); ++b) t.set(b, name[5] == 'c' ? 0.0 : 1.0);
    }
    const auto state_after = [&](const call::Record& r) {
      return first_difference("final_state", state.bytes(),
                              outputs_of(r, {.separate = 1}).at("final_state").bytes());
    };
    CHECK(state_after(record) == "");
    take_inputs(record, call::axis::kToken, {});
    CHECK(state_after(record) == "");
  });
}

const std::string kHostile =
    "op={gdn,kda} mode=mtp B=5 T=8 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} "
    "slots=permuted ring=io window=16 io=bf16 index={i32,i64} pad_slot=-1\n"
    "op=kda mode=mtp B=5 T=3 H=1 HV=1 K=128 V=128 state_layout={vk,kv} state={f32,bf16} "
    "slots=permuted ring=io window=19 io=bf16 index=i32 pad_slot=-1";

TEST_CASE("replay: a row with a cursor out of range is padding") {
  REQUIRE_GPU();
  struct Spoil {
    const char* name;
    std::int64_t value;
  };
  constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();
  for_each_case(kHostile, [&](const LiveCase&, const call::Record& record) {
    call::Record padded = record;
    padded.inputs.at("state_indices").set(1, -1);
    const call::TensorMap expected = outputs_of(padded);
    const call::Dims d = call::validate(record);
    for (const Spoil& spoil : {Spoil{"ring_indices", -1},
                               {"ring_indices", d.rings},
                               {"ring_indices", kFar},
                               {"ring_start", -1},
                               {"ring_start", d.ring_places},
                               {"ring_start", -kFar},
                               {"ring_count", -1},
                               {"ring_count", d.ring_places - d.T + 1},
                               {"ring_count", kFar},
                               {"ring_flush", 2},
                               {"ring_flush", -1}}) {
      CAPTURE(spoil.name);
      CAPTURE(spoil.value);
      call::Record spoiled = record;
      spoiled.inputs.at(spoil.name).set(1, static_cast<double>(spoil.value));
      LiveCall live(spoiled);
      live.launch();
      live.synchronize();
      CHECK(live.stray_write(writes_of(padded)) == "");
      CHECK(difference(expected, live.outputs()) == "");
    }
  });
}

}  // namespace
}  // namespace goldenrule::test
