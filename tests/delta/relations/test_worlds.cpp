// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "fixtures/call/error.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/relations/worlds.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/delta/relations/support.hpp"

using namespace goldenrule;
using namespace goldenrule::relations;
using namespace goldenrule::relations::test;

namespace {

template <class F>
void for_each_world(const contract::Contract& contract, F&& f) {
  for (const World& world : worlds_of(contract)) {
    for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
      for (const call::Mode mode : {call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill}) {
        for (const auto layout : {call::StateLayout::kVK, call::StateLayout::kKV}) {
          const WorldShape shape{.op = op,
                                 .mode = mode,
                                 .layout = layout,
                                 .rows = 3,
                                 .T = mode == call::Mode::kPrefill ? 70 : 5,
                                 .H = 2,
                                 .HV = 4,
                                 .K = std::max<std::int64_t>(world.entries, 32),
                                 .V = 8};
          f(world, shape);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("kernels of every contract are exact in the worlds of their operands") {
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kDelta)) {
    CAPTURE(contract.name);
    std::size_t count = 0;
    for_each_world(contract, [&](const World& world, const WorldShape& shape) {
      const call::Record record = make_world(world, shape, 5);
      CAPTURE(world.entries);
      CAPTURE(static_cast<int>(shape.mode));
      for (const std::uint64_t seed : {1U, 2U, 3U}) {  // three orders of summation
        const Outcome outcome =
            check_world(record, verdict::emulated_kernel(delta::slice(), contract, seed), contract);
        CHECK_MESSAGE(outcome.holds(), to_text(outcome));
      }
      ++count;
    });
    CHECK(count == worlds_of(contract).size() * 12);
  }
}

TEST_CASE("the worlds are those that the bits of a contract allow") {
  CHECK(worlds_of(contract::find_contract("recurrent_f32")).size() == 4);
  CHECK(worlds_of(contract::find_contract("ideal")).size() == 4);
  for (const char* name : {"chunk64_bf16", "chunk16_bf16_state"}) {
    const auto worlds = worlds_of(contract::find_contract(name));
    REQUIRE(worlds.size() == 1);
    CHECK(worlds[0].entries == 16);
    CHECK(worlds[0].magnitude == 1);
  }
  // 1 sqrt(32) 16 = 90.5, 8 sqrt(128) 512 = 46341, 8 sqrt(512) 4096 = 741455.
  CHECK(operand_bits({16, 1}) == 7);
  CHECK(sum_bits({64, 8}) == 16);
  CHECK(sum_bits({256, 8}) == 20);
}

TEST_CASE("a world is as large as its bound says, and its states fit the operands") {
  // They grow beyond the start state, but not beyond a sqrt(2 m).
  for (const World world : {World{16, 1}, World{64, 8}, World{256, 8}}) {
    const WorldShape shape{.mode = call::Mode::kMtp, .rows = 2, .T = 40, .K = world.entries};
    const call::Record record = make_world(world, shape, 1);
    const call::TensorMap outputs = verdict::exact_outputs(delta::slice(), record);
    const auto m = static_cast<double>(world.entries);
    double largest = 0.0;
    const call::Tensor& states = outputs.at("intermediate_states");
    for (std::int64_t i = 0; i < states.size(); ++i) {
      largest = std::fmax(largest, std::fabs(states[i]));
      const double units = states[i] * m;  // S is a multiple of 2^-2e = 1 / m
      REQUIRE(units == std::nearbyint(units));
    }
    const double bound = static_cast<double>(world.magnitude) * std::sqrt(2.0 * m);
    CHECK(largest <= bound);
    CHECK(largest > static_cast<double>(world.magnitude));
  }
}

TEST_CASE("coarser operands than a world allows show") {
  const contract::Contract& declared = contract::find_contract("recurrent_f32");
  const Kernel bf16 =
      verdict::emulated_kernel(delta::slice(), contract::find_contract("chunk64_bf16"), 1);
  const auto tf32 = std::ranges::find(delta::mistakes(), "tf32_operands", &calls::Mistake::name);
  REQUIRE(tf32 != delta::mistakes().end());
  int tried = 0;
  for_each_world(declared, [&](const World& world, const WorldShape& shape) {
    // The first states are integers, which bf16 holds; the bound is reached over many tokens.
    if (world.entries < 64 || shape.mode != call::Mode::kPrefill) return;
    CAPTURE(world.entries);
    const call::Record record = make_world(world, shape, 5);
    CHECK(!check_world(record, bf16, declared).findings.empty());
    ++tried;
    if (world.entries < 256) return;
    // 11 bits hold the states of the smaller worlds.
    const Kernel wrong = [&](const call::Record& r) {
      return tf32->commit(r, verdict::exact_kernel(delta::slice()));
    };
    CHECK(!check_world(record, wrong, declared).findings.empty());
  });
  CHECK(tried == 8);
}

TEST_CASE("a world that cannot be is refused") {
  CHECK_THROWS_WITH_AS((void)make_world({.entries = 32}, {}, 1),
                       "World::entries: expected a power of 4, at least 4, actual 32", Error);
  CHECK_THROWS_WITH_AS((void)make_world({.entries = 64}, {.K = 96}, 1),
                       "WorldShape::K: expected a multiple of 64, actual 96", Error);
}
