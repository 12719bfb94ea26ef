// SPDX-License-Identifier: Apache-2.0
//
// No element is paid for by another (locality.hpp): rings, states on the way of an MTP call, and
// checkpoints of prefill.
#include <iterator>

#include "tests/delta/emulation/locality.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

// The tokens of the call, which no folded state has.
void change_new_tokens(World& w, const Value& f) {
  change(w.record, "v", [&](std::int64_t, double v) { return f(v); });
}

// What waits in the rings of row 0, which no other row replays.
void change_pending(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const call::Shape& shape = w.record.inputs.at("initial_ring_d").shape();
  const std::int64_t size = shape[1] * shape[2] * shape[3];
  change(w.record, "initial_ring_d", [&](std::int64_t i, double d) {
    return i / size == plan.sequences.front().replay.ring ? f(d) : d;
  });
}

// Places that are not pending.
void change_forgotten(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const call::Shape shape = w.record.inputs.at("initial_ring_d").shape();
  std::vector<char> pending(static_cast<std::size_t>(shape[0] * shape[2]), 0);
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t t = 0; t < s.replay.count; ++t) {
      pending[static_cast<std::size_t>(s.replay.ring * shape[2] + s.replay.place(t))] = 1;
    }
  }
  for (const char* name : {"initial_ring_d", "initial_ring_k", "initial_ring_g"}) {
    const call::Shape own = w.record.inputs.at(name).shape();
    const std::int64_t width = own.size() > 3 ? own[3] : 1;
    change(w.record, name, [&](std::int64_t i, double x) {
      const std::int64_t ring = i / (own[1] * own[2] * width);
      const std::int64_t place = i / width % own[2];
      return pending[static_cast<std::size_t>(ring * own[2] + place)] != 0 ? x : f(x);
    });
  }
}

// v of the last token of each row: no state before it has that.
void change_last_token(World& w, const Value& f) {
  const call::Plan plan = call::make_plan(w.record, true);
  const std::int64_t width = w.dims.HV * w.dims.V;
  for (const call::Sequence& s : plan.sequences) {
    const std::int64_t last = s.first_token + s.token_count - 1;
    change(w.record, "v", [&](std::int64_t i, double v) {
      return s.token_count > 0 && i / width == last ? f(v) : v;
    });
  }
}

void rings_hold(const std::string& line) {
  CAPTURE(line);
  const std::vector<Disturbed> all = disturbances<World>({{"channel", change_channel},
                                                          {"others", change_others},
                                                          {"head", change_head},
                                                          {"new tokens", change_new_tokens},
                                                          {"pending tokens", change_pending},
                                                          {"forgotten places", change_forgotten}});
  for (const char* name :
       {"recurrent_f32", "recurrent_f32_bf16_activations", "chunk64_f32", "replay_bf16"}) {
    CHECK(holds(World(line), contract::find_contract(name), all) > 0);
  }
}

void checkpoints_hold(const std::string& line) {
  CAPTURE(line);
  std::vector<Disturbed> all =
      disturbances<World>({{"channel", change_channel}, {"others", change_others}});
  // NaN reaches all rows of a product of its chunk in which it is masked.
  std::ranges::copy(disturbances<World>({{"last token", change_last_token}}, finite_numbers()),
                    std::back_inserter(all));
  for (const char* name : {"recurrent_f32", "chunk64_f32", "chunk64_bf16", "chunk16_bf16_state"}) {
    CHECK(holds(World(line), contract::find_contract(name), all) > 0);
  }
}

}  // namespace

TEST_CASE("no element is paid for by another: rings of GDN") {
  rings_hold("op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=16 V=8 slots=permuted ring=f32 io=f32 window=8");
}

TEST_CASE("no element is paid for by another: rings of KDA") {
  rings_hold(
      "op=kda mode=mtp lens=3,0,1,4 H=1 HV=2 K=16 V=8 slots=separate ring=f32 window=9 "
      "gate=bounded state_layout=kv");
}

TEST_CASE("no element is paid for by another: states between the tokens of a call") {
  all_hold(
      {World("op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=32 V=16 io=bf16"),
       World("op=kda mode=mtp B=3 T=4 H=1 HV=2 K=32 V=16 io=bf16 state_layout=kv slots=padded")},
      {"ideal", "recurrent_f32", "recurrent_f32_bf16_activations", "recurrent_bf16_state"},
      disturbances<World>({{"channel", change_channel},
                           {"others", change_others},
                           {"head", change_head},
                           {"last token", change_last_token}}));
}

TEST_CASE("no element is paid for by another: checkpoints of GDN") {
  checkpoints_hold(
      "op=gdn mode=prefill lens=100,20 H=1 HV=2 K=16 V=8 gate=log io=bf16 slots=padded "
      "checkpoints=after every=64");
}

TEST_CASE("no element is paid for by another: checkpoints of KDA") {
  checkpoints_hold(
      "op=kda mode=prefill lens=70,20 H=1 HV=2 K=16 V=8 gate=bounded h0=1 io=bf16 "
      "checkpoints=before every=32 state_layout=kv");
}

// A kernel that ends chunks at checkpoints has other tokens in one chunk with a NaN than one that
// does not, and neither is accused.
TEST_CASE("a NaN behind a checkpoint accuses no kernel of its chunk") {
  World world(
      "op=kda mode=prefill lens=70,20 H=1 HV=2 K=16 V=8 gate=bounded h0=1 io=bf16 "
      "checkpoints=before every=24");
  change_others(world, [](double) { return std::numeric_limits<double>::quiet_NaN(); });
  for (const char* name : {"chunk64_f32", "chunk64_bf16", "chunk16_bf16_state"}) {
    CAPTURE(name);
    const contract::Contract& contract = contract::find_contract(name);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(seed);
      world.record.outputs = delta::emulate(world.record, contract, seed);
      CHECK(verdict::judge_record(delta::slice(), world.record,
                                  {.contract = contract, .precision = scalar::Precision::kDouble})
                .verdict != verdict::Verdict::kOutOfBudget);
    }
  }
}

// What a kernel loses in the chunk of a NaN is honest, and what is a number there is judged.
TEST_CASE("a NaN costs an honest kernel the numbers of its chunk at most") {
  const std::string line =
      "op=kda mode=prefill lens=100,5 H=1 HV=2 K=16 V=8 gate=bounded h0=1 io=bf16 "
      "checkpoints=before every=48";
  constexpr std::int64_t kToken = 90;
  constexpr std::int64_t kChannel = 5;
  for (const char* input : {"v", "k", "b"}) {
    for (const char* name : {"chunk64_f32", "chunk64_bf16", "chunk16_bf16_state"}) {
      CAPTURE(input);
      CAPTURE(name);
      World world(line);
      const contract::Contract& contract = contract::find_contract(name);
      call::Tensor& spoilt = world.record.inputs.at(input);
      const std::int64_t width = spoilt.size() / 105;
      spoilt.set(kToken * width + (std::string(input) == "b" ? 0 : kChannel),
                 std::numeric_limits<double>::quiet_NaN());
      const auto verdict_of = [&] {
        const auto report =
            verdict::judge_record(delta::slice(), world.record,
                                  {.contract = contract, .precision = scalar::Precision::kDouble});
        return report.verdict;
      };
      // Channel 5 of head 0 at token t.
      const auto o = [&](std::int64_t t) { return (t * 2 + 0) * 8 + kChannel; };
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(seed);
        world.record.outputs = delta::emulate(world.record, contract, seed);
        CHECK(verdict::is_pass(verdict_of()));
      }
      call::Tensor& output = world.record.outputs.at("o");
      const call::Tensor honest = output;
      output.set(o(kToken - 1), std::numeric_limits<double>::quiet_NaN());
      CHECK(verdict::is_pass(verdict_of()));  // of the same chunk
      output = honest;
      output.set(o(kToken - 1), 8.0);
      CHECK(verdict_of() == verdict::Verdict::kOutOfBudget);
      output = honest;
      output.set(o(40), std::numeric_limits<double>::quiet_NaN());
      CHECK(verdict_of() == verdict::Verdict::kOutOfBudget);
    }
  }
}
