// SPDX-License-Identifier: Apache-2.0
//
// Where prefill finds and leaves states: slots of a pool, and checkpoints. A pool is compared bit
// for bit with the same call on dense states; a checkpoint is judged as the final state of the call
// that ends there.
#include <algorithm>
#include <array>
#include <string_view>

#include "fixtures/call/plan.hpp"
#include "reference/delta/calls/rows.hpp"
#include "tests/gpu/device_list.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;
using call::TensorMap;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kPoolSlots = 11;

/// Slots of five sequences, in a pool of eleven.
struct Slots {
  Integers start, output;  ///< output empty: absent
  std::int64_t pad_slot;
  bool separate;  ///< final states go into another pool
};
const std::array kSlots{
    Slots{{7, 10, 0, 3, 4}, {}, -1, false},
    Slots{{7, -1, 0, 3, 4}, {}, -1, false},
    Slots{{7, 2, 0, 3, 2}, {}, 2, false},  // a pad slot inside the pool
    Slots{{7, -9, 0, 11, 1 << 30}, {}, -1, false},
    Slots{{7, 10, 0, -1, 4}, {8, 9, -1, 5, 6}, -1, false},
    Slots{{7, 10, 0, 3, 4}, {8, 9, 11, 5, -3}, -1, true},
    Slots{{7, -1, 0, 3, 4}, {}, -1, true},
};

/// -1 for what means no slot.
std::int64_t meant(std::int64_t slot, const Slots& slots) {
  return slot == slots.pad_slot || slot < 0 || slot >= kPoolSlots ? -1 : slot;
}

/// What the pools hold and o is after the call, by the call on dense states.
struct Expected {
  Bytes start, final;
  Tensor o;
};
Expected expect(const Record& record, const Slots& slots, const DeviceStates& start,
                const DeviceStates& final) {
  const TensorMap dense = outputs_of(record, {.separate = 1});
  Expected e{start.image(), final.image(), dense.at("o")};
  const call::Plan plan = call::make_plan(record, false);
  const std::int64_t row = plan.dims.HV * plan.dims.V;
  Bytes& written = slots.separate ? e.final : e.start;
  for (std::size_t n = 0; n < slots.start.size(); ++n) {
    const call::Sequence& s = plan.sequences[n];
    const std::int64_t from = meant(slots.start[n], slots);
    const std::int64_t to = slots.output.empty() ? from : meant(slots.output[n], slots);
    if (from < 0) {
      for (std::int64_t i = 0; i < s.token_count * row; ++i) e.o.set(s.first_token * row + i, 0.0);
    } else if (to >= 0) {
      std::copy_n(&dense.at("final_state").bytes()[n * start.block()], start.block(),
                  &written[static_cast<std::size_t>(to) * start.block()]);
    }
  }
  return e;
}

void check_pool(const LiveCase& c, const Record& record, const Slots& slots, bool wide) {
  const Tensor& states = record.inputs.at("initial_state");
  DeviceStates start("pool", kPoolSlots, record), final("final pool", kPoolSlots, record);
  for (std::size_t n = 0; n < slots.start.size(); ++n) {
    const std::int64_t slot = meant(slots.start[n], slots);
    if (slot >= 0) start.put(static_cast<std::size_t>(slot), states.bytes(), n);
  }
  start.upload();
  final.upload();
  const DeviceList from("state_indices", slots.start, wide);
  const DeviceList to("output_state_indices", slots.output, wide);
  LiveCall live(record, c.placement);
  goldenrule_gpu_prefill_args& args = live.prefill_args();
  args.state = start.tensor();
  if (slots.separate) args.final_state = final.tensor();
  args.slots = kPoolSlots;
  args.pad_slot = slots.pad_slot;
  args.state_indices = from.tensor();
  if (!slots.output.empty()) args.output_state_indices = to.tensor();
  live.launch();
  live.synchronize();
  CHECK(live.stray_write({.o = true, .final_state = std::vector<bool>(5), .kept_states = {}}) ==
        "");
  for (const std::string& complaint :
       {start.violation(), final.violation(), from.violation(), to.violation()}) {
    CHECK(complaint == "");
  }
  const Expected e = expect(record, slots, start, final);
  const TensorMap outputs = live.outputs();
  CHECK(first_difference("o", e.o.bytes(), outputs.at("o").bytes()) == "");
  CHECK(first_difference("pool", e.start, start.download()) == "");
  CHECK(first_difference("final pool", e.final, final.download()) == "");
}

TEST_CASE("prefill slots: the bits of dense states, nothing else touched") {
  REQUIRE_GPU();
  for_each_case(kFamilies + "mode=prefill lens=9,5,0,1,70 H=1 HV=2 K={128,60} V=64 h0=1",
                [](const LiveCase& c, const Record& record) {
                  for (const Slots& slots : kSlots) {
                    for (const bool wide : {false, true}) check_pool(c, record, slots, wide);
                  }
                });
}

/// The rows of checkpoints that a call asks for, of sequences of 20, 0, 70 and 9 tokens: after how
/// many tokens each is, as the host counts them.
struct Checkpoints {
  const char* name;
  Integers offsets;        ///< empty: by `every`
  std::int64_t every = 0;  ///< 0: by `offsets`
  bool before = false;
  Integers positions;  ///< empty: absent
  Integers bounds;
  Integers after;  ///< of each row; -1: not written
};
const std::array kCheckpoints{
    Checkpoints{.name = "a list",
                .offsets = {0, 1, 8, 9, 20, 0, 0, 33, 64, 70},
                .positions = {},
                .bounds = {0, 5, 7, 10, 10},
                .after = {0, 1, 8, 9, 20, 0, 0, 33, 64, 70, -1}},
    Checkpoints{.name = "a list with rows that are none",
                .offsets = {5, 3, 7, 21, -1, 1, 70, 71, 70, 9},
                .positions = {},
                .bounds = {0, 5, 6, 9, 10},
                .after = {5, -1, 7, -1, -1, -1, 70, -1, 70, 9, -1}},
    Checkpoints{.name = "every 8 after",
                .offsets = {},
                .every = 8,
                .positions = {},
                .bounds = {0, 2, 2, 10, 11},
                .after = {8, 16, 8, 16, 24, 32, 40, 48, 56, 64, 8}},
    Checkpoints{.name = "every 16 before",
                .offsets = {},
                .every = 16,
                .before = true,
                .positions = {},
                .bounds = {0, 2, 3, 8, 9},
                .after = {0, 16, 0, 0, 16, 32, 48, 64, 0, -1, -1}},
    Checkpoints{.name = "every 16 after, going on",
                .offsets = {},
                .every = 16,
                .positions = {3, 0, 16, 40},
                .bounds = {0, 1, 2, 6, 8},
                .after = {13, -1, 16, 32, 48, 64, 8, -1, -1, -1, -1}},
    Checkpoints{.name = "every 64 before, going on",
                .offsets = {},
                .every = 64,
                .before = true,
                .positions = {63, 64, 100, 57},
                .bounds = {0, 1, 2, 3, 4},
                .after = {1, 0, 28, 7, -1, -1, -1, -1, -1, -1, -1}},
};
constexpr std::int64_t kRows = 11;

/// "" or what is wrong with the state that a row of sequence n holds.
std::string judge_row(const Record& record, const LiveCall& live, const Placement& placement,
                      std::int64_t n, std::int64_t after, const std::byte* row) {
  const call::Plan plan = call::make_plan(record, false);
  const calls::Stretch stretch{.sequence = n, .begin = 0, .count = after};
  const Tensor& states = record.inputs.at("initial_state");
  Record prefix =
      calls::stretch_call(record, plan, call::Mode::kPrefill, std::span(&stretch, 1), states);
  const bool recurrent = std::string_view(live.contract()).starts_with("recurrent");
  Tensor state(states.dtype(), prefix.inputs.at("initial_state").shape());
  std::copy_n(row, state.bytes().size(), state.bytes().begin());
  // Of kernels that keep the contracts of the recurrent ones no checkpoint moves a chunk.
  if (recurrent) {
    const TensorMap alone = outputs_of(prefix, placement);
    std::string text =
        first_difference("checkpoint", alone.at("final_state").bytes(), state.bytes());
    if (!text.empty()) return text;
  }
  prefix.outputs["final_state"] = state;
  prefix.contract = live.contract();
  Tally tally;
  return judge(prefix, false, tally);
}

void check_checkpoints(const LiveCase& c, Record record, const Checkpoints& wanted, bool wide) {
  DeviceStates rows("checkpoints", kRows, record);
  rows.upload();
  Integers list = wanted.offsets;
  list.resize(kRows, 0);
  const DeviceList bounds("cu_checkpoints", wanted.bounds, wide), offsets("offsets", list, !wide);
  const DeviceList positions("start_positions", wanted.positions, wide);
  LiveCall live(record, c.placement);
  goldenrule_gpu_prefill_args& args = live.prefill_args();
  args.checkpoints = rows.tensor();
  args.checkpoint_rows = kRows;
  args.checkpoint_every = wanted.every;
  args.checkpoint_form =
      wanted.before ? GOLDENRULE_GPU_CHECKPOINTS_BEFORE : GOLDENRULE_GPU_CHECKPOINTS_AFTER;
  args.cu_checkpoints = bounds.tensor();
  if (wanted.every == 0) args.checkpoint_offsets = offsets.tensor();
  if (!wanted.positions.empty()) args.start_positions = positions.tensor();
  record.outputs = outputs_of(live, record.case_line);
  record.contract = live.contract();
  Tally tally;
  CHECK(judge(record, false, tally) == "");
  const Bytes now = rows.download();
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::byte* row = &now[r * rows.block()];
    const std::size_t n = static_cast<std::size_t>(
        std::ranges::upper_bound(wanted.bounds, static_cast<std::int64_t>(r)) -
        wanted.bounds.begin() - 1);
    CAPTURE(r);
    if (wanted.after[r] >= 0) {
      CHECK(judge_row(record, live, c.placement, static_cast<std::int64_t>(n), wanted.after[r],
                      row) == "");
    } else {
      CHECK(std::equal(row, row + rows.block(), &rows.image()[r * rows.block()]));
    }
  }
  CHECK(rows.violation() == "");
}

TEST_CASE("prefill checkpoints in every form: the state after these tokens") {
  REQUIRE_GPU();
  for_each_case(
      kFamilies + "mode=prefill lens=20,0,70,9 H=1 HV=2 K={128,60} V=64 h0=1 precise={0,1}",
      [](const LiveCase& c, const Record& record) {
        for (const Checkpoints& wanted : kCheckpoints) {
          CAPTURE(wanted.name);
          for (const bool wide : {false, true}) {
            check_checkpoints(c, record, wanted, wide);
          }
        }
      });
}

TEST_CASE("prefill checkpoints without an update, and of padded sequences") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=prefill lens=20,9 H=1 HV=2 K=128 V=64 h0=1 state={f32,bf16}",
      [](const LiveCase& c, const Record& record) {
        DeviceStates rows("checkpoints", 2, record);
        rows.upload();
        const DeviceList bounds("cu_checkpoints", {0, 1, 2}, false), at("offsets", {20, 9}, false);
        const DeviceList slots("state_indices", {0, -1}, false);
        LiveCall live(record, c.placement);
        goldenrule_gpu_prefill_args& args = live.prefill_args();
        args.checkpoints = rows.tensor();
        args.checkpoint_rows = 2;
        args.cu_checkpoints = bounds.tensor();
        args.checkpoint_offsets = at.tensor();
        args.state_indices = slots.tensor();
        args.disable_state_update = 1;
        live.launch();
        live.synchronize();
        CHECK(live.stray_write({.o = true, .final_state = {false, false}, .kept_states = {}}) ==
              "");
        const Bytes now = rows.download();
        CHECK(judge_row(record, live, c.placement, 0, 20, now.data()) == "");
        CHECK(std::equal(now.begin() + static_cast<std::ptrdiff_t>(rows.block()), now.end(),
                         rows.image().begin() + static_cast<std::ptrdiff_t>(rows.block())));
      });
}

}  // namespace
}  // namespace goldenrule::test
