// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (locality.hpp): slots of a pool that nobody names, whatever
// they hold, heads, queries, and gates of other heads.
#include "tests/delta/emulation/locality.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

// Slots that no row reads. They are kept, so they are expected as they are.
void change_unnamed_slots(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  std::vector<char> named(static_cast<std::size_t>(w.dims.slots), 0);
  for (const call::Sequence& s : plan.sequences) {
    if (s.start_block >= 0) named[static_cast<std::size_t>(s.start_block)] = 1;
  }
  const std::int64_t size = w.dims.HV * w.dims.state_size();
  change(w.record, "initial_state", [&](std::int64_t i, double s) {
    return named[static_cast<std::size_t>(i / size)] != 0 ? s : f(s);
  });
}

// What the last row holds at the start: its slot is not read by the others.
void change_last_slot(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const std::int64_t size = w.dims.HV * w.dims.state_size();
  std::int64_t slot = -1;
  for (const call::Sequence& s : plan.sequences) {
    if (!s.padded) slot = s.start_block;
  }
  change(w.record, "initial_state",
         [&](std::int64_t i, double s) { return i / size == slot ? f(s) : s; });
}

// q of each third row: it reads the state, and no state has it.
void change_some_queries(World& w, const Value& f) {
  change(w.record, "q",
         [&](std::int64_t i, double q) { return i / (w.dims.H * w.dims.K) % 3 == 0 ? f(q) : q; });
}

// The gates of the last head.
void change_head_gates(World& w, const Value& f) {
  for (const char* name : {"a", "g"}) {
    const std::int64_t width = w.record.op == call::Op::kKda ? w.dims.K : 1;
    change(w.record, name, [&](std::int64_t i, double a) {
      return i / width % w.dims.HV == w.dims.HV - 1 ? f(a) : a;
    });
  }
}

std::vector<Disturbed> of_pools() {
  std::vector<Disturbed> all =
      disturbances<World>({{"unnamed slots", change_unnamed_slots}}, numbers(3e38));
  const std::vector<Disturbed> values =
      disturbances<World>({{"last slot", change_last_slot}, {"head", change_head}});
  std::ranges::copy(values, std::back_inserter(all));
  std::vector<Numbers> small = numbers();
  std::erase_if(small, [](const Numbers& n) { return n.f(1.0) > 1.0; });
  std::ranges::copy(
      disturbances<World>({{"queries", change_some_queries}, {"gates", change_head_gates}}, small),
      std::back_inserter(all));
  return all;
}

}  // namespace

TEST_CASE("no element is paid for by another: decode with a pool") {
  all_hold(
      {World("op=gdn mode=decode B=4 H=1 HV=2 K=32 V=16 io=bf16 slots=padded"),
       World("op=kda mode=decode B=3 H=1 HV=2 K=16 V=8 io=bf16 slots=separate state_layout=kv"),
       World("op=gdn mode=decode B=3 H=2 HV=4 K=16 V=8 io=bf16 state=bf16 slots=permuted")},
      {"ideal", "recurrent_f32", "recurrent_f32_bf16_activations", "recurrent_bf16_state",
       "chunk64_bf16"},
      of_pools());
}

TEST_CASE("no element is paid for by another: prefill with a pool") {
  all_hold(
      {World("op=gdn mode=prefill lens=20,0,9 H=1 HV=2 K=16 V=8 gate=log io=bf16 slots=permuted"),
       World("op=kda mode=prefill lens=20,9 H=1 HV=2 K=16 V=8 gate=bounded io=bf16 slots=separate "
             "state_layout=kv")},
      {"recurrent_f32", "chunk64_f32", "chunk64_bf16", "chunk16_bf16_state"}, of_pools());
}
