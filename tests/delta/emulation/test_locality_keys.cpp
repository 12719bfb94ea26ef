// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (locality.hpp): key channels that neither keys nor queries
// read, and numbers that are 0 beside others.
#include "tests/delta/emulation/locality.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

constexpr std::int64_t kUnread = 3;  // a key channel

// No key and no query has key channel kUnread.
World unread(const std::string& line) {
  World world(line);
  const std::int64_t K = world.dims.K;
  for (const char* name : {"k", "q"}) {
    change(world.record, name,
           [&](std::int64_t i, double x) { return i % K == kUnread ? 0.0 : x; });
  }
  return world;
}

// What is left of a state that is erased, but for what that channel leaves: nothing is added to it.
World erased(const std::string& line) {
  World world = unread(line);
  change(world.record, "v", [](std::int64_t, double) { return 0.0; });
  change(world.record, "A_log", [](std::int64_t, double) { return 0.0; });
  for (const char* name : {"a", "g"}) {
    change(world.record, name, [](std::int64_t, double) { return 30.0; });
  }
  return world;
}

// What the start state holds in it, or its gates.
void change_unread_states(World& w, const Value& f) {
  change(w.record, "initial_state",
         [&](std::int64_t i, double s) { return w.key_of(i) == kUnread ? f(s) : s; });
}
void change_unread_state_of_a_channel(World& w, const Value& f) {
  change(w.record, "initial_state", [&](std::int64_t i, double s) {
    return w.key_of(i) == kUnread && w.value_of(i) == 1 ? f(s) : s;
  });
}
void change_unread_gates(World& w, const Value& f) {
  for (const char* name : {"a", "g"}) {
    change(w.record, name,
           [&](std::int64_t i, double a) { return i % w.dims.K == kUnread ? f(a) : a; });
  }
}

// 0 times NaN is NaN: what a kernel multiplies by 0 is read.
const std::vector<Place> kStates{{"unread states", change_unread_states},
                                 {"an unread state", change_unread_state_of_a_channel}};
const std::vector<Place> kGates{{"unread gates", change_unread_gates}};

}  // namespace

TEST_CASE("no element is paid for by another: key channels in decode and MTP") {
  all_hold({unread("op=gdn mode=decode B=3 H=1 HV=2 K=16 V=8 io=bf16"),
            unread("op=kda mode=decode B=3 H=1 HV=2 K=16 V=8 io=bf16 state_layout=kv"),
            unread("op=gdn mode=mtp B=2 T=3 H=1 HV=2 K=16 V=8 io=bf16")},
           {"recurrent_f32", "recurrent_f32_bf16_activations", "recurrent_bf16_state"},
           disturbances<World>(kStates, finite_numbers()));
}

TEST_CASE("no element is paid for by another: key channels in prefill") {
  all_hold({unread("op=gdn mode=prefill lens=20,9 H=1 HV=2 K=16 V=8 gate=log h0=1 io=bf16"),
            unread("op=kda mode=prefill lens=20,9 H=1 HV=2 K=16 V=8 h0=1 io=bf16 state_layout=kv")},
           {"recurrent_f32", "chunk64_f32", "recurrent_bf16_state", "chunk64_bf16", "chunk64_tf32"},
           disturbances<World>(kStates, finite_numbers()));
}

TEST_CASE("no element is paid for by another: gates of key channels") {
  all_hold({erased("op=kda mode=decode B=3 H=1 HV=2 K=16 V=8 io=f32 gate=softplus"),
            erased("op=kda mode=prefill lens=1,1 H=1 HV=2 K=16 V=8 io=f32 gate=softplus h0=1")},
           {"recurrent_f32"}, disturbances<World>(kGates, finite_numbers()));
}

// Below 2^-12 the spacing of f16 is absolute: where all of a row lies there, an element that is
// almost 0 has an error that is a large multiple of it.
TEST_CASE("no element is paid for by another: a 0 among numbers near the floor of f16") {
  World world("op=gdn mode=prefill lens=2 H=1 HV=1 K=16 V=16 io=f16 gate=log h0=1");
  change(world.record, "v", [](std::int64_t, double v) { return 0.015 * v; });
  change(world.record, "initial_state", [](std::int64_t, double) { return 0.0; });
  change(world.record, "g", [](std::int64_t i, double g) { return i == 1 ? -9.7 : g; });
  change(world.record, "b", [](std::int64_t i, double b) { return i == 1 ? -4.0 : b; });
  const std::int64_t last = world.record.inputs.at("v").size() - 1;
  const Place place{"v of a token", [=](World& w, const Value& f) {
                      change(w.record, "v",
                             [&](std::int64_t i, double v) { return i == last ? f(v) : v; });
                    }};
  const std::vector<Numbers> zero{{"is 0", [](double) { return 0.0; }, true}};
  // What is left of its state is as small as that spacing: a contract says nothing of it.
  CHECK(holds(world, contract::find_contract("chunk64_16bit"), disturbances<World>({place}, zero),
              {"final_state"}) > 0);
}
