// SPDX-License-Identifier: Apache-2.0
//
// Prefill and what only the device can see: bounds, slots and checkpoints of any value. Such a call
// may have no defined result, but it touches nothing outside its buffers, and no slot that no index
// names. And calls that the host refuses write nothing at all.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/device_list.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using Integers = std::vector<std::int64_t>;

/// Values around `most`, around 0 and around the ends of the types.
Integers hostile_values(std::int64_t most, bool wide) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  Integers values{0,  1,  2,        most / 2, most - 1,      most,
                  -1, -2, most + 1, 1 << 20,  Narrow::max(), Narrow::min()};
  if (wide) values.insert(values.end(), {Wide::max(), Wide::min(), std::int64_t{1} << 32});
  return values;
}

Integers draw(const char* name, std::uint64_t seed, std::size_t count, std::int64_t most,
              bool wide) {
  const Integers values = hostile_values(most, wide);
  const random::Stream stream(seed, name);
  Integers list;
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back(values[stream.bits(static_cast<std::int64_t>(i)) % values.size()]);
  }
  return list;
}

/// Without checkpoints long sequences are cut into segments.
enum class Asks : std::uint8_t { kNothing, kCheckpoints };

void run_hostile(const LiveCase& c, const Record& record, std::uint64_t seed, bool wide,
                 Asks asks) {
  constexpr std::int64_t kSlots = 9, kRows = 6;
  const call::Dims d = call::validate(record);
  const auto n = static_cast<std::size_t>(d.rows);
  DeviceStates pool("pool", kSlots, record);
  DeviceStates rows("checkpoints", kRows, record);
  pool.upload();
  rows.upload();
  const Integers start = draw("start", seed, n, kSlots, wide);
  const Integers output = draw("output", seed, n, kSlots, wide);
  const DeviceList seqlens("cu_seqlens", draw("seqlens", seed, n + 1, d.tokens, wide), wide);
  const DeviceList from("state_indices", start, wide), to("output_state_indices", output, wide);
  const DeviceList bounds("cu_checkpoints", draw("bounds", seed, n + 1, kRows, wide), wide);
  const DeviceList offsets("offsets", draw("offsets", seed, kRows, 20, wide), wide);
  const DeviceList positions("positions", draw("positions", seed, n, 64, wide), wide);
  LiveCall live(record, c.placement);
  goldenrule_gpu_prefill_args& args = live.prefill_args();
  args.state = pool.tensor();
  args.slots = kSlots;
  args.cu_seqlens = seqlens.tensor();
  args.state_indices = from.tensor();
  args.output_state_indices = to.tensor();
  if (asks == Asks::kCheckpoints) {
    args.checkpoints = rows.tensor();
    args.checkpoint_rows = kRows;
    args.cu_checkpoints = bounds.tensor();
    if (seed % 2 == 0) {
      args.checkpoint_offsets = offsets.tensor();
    } else {
      args.checkpoint_every = seed % 4 == 1 ? 8 : 0x7fffffff;
      args.checkpoint_form = seed % 3 == 0 ? 1 : 0;
      args.start_positions = positions.tensor();
    }
  }
  live.launch();
  live.synchronize();
  CHECK(live.stray_write({.o = true, .final_state = std::vector<bool>(n), .kept_states = {}}) ==
        "");
  for (const std::string& complaint :
       {pool.violation(), rows.violation(), seqlens.violation(), from.violation(), to.violation(),
        bounds.violation(), offsets.violation(), positions.violation()}) {
    CHECK(complaint == "");
  }
  const Bytes now = pool.download();
  for (std::int64_t slot = 0; slot < kSlots; ++slot) {
    if (std::ranges::find(output, slot) != output.end()) continue;
    const std::size_t at = static_cast<std::size_t>(slot) * pool.block();
    CHECK(std::equal(&now[at], &now[at] + pool.block(), &pool.image()[at]));
  }
}

TEST_CASE("prefill any bound, slot and checkpoint: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  int calls = 0;
  for_each_case(
      "op={gdn,kda} mode=prefill lens=20,0,33,7,1 H=1 HV=2 K={128,60} V=64 h0=1 "
      "state_layout={vk,kv} state={f32,bf16}",
      [&](const LiveCase& c, const Record& record) {
        for (std::uint64_t seed = 0; seed < 24; ++seed) {
          run_hostile(c, record, seed, seed % 3 == 0, Asks::kCheckpoints);
          ++calls;
        }
      });
  std::printf("%d hostile calls\n", calls);
}

#ifdef GOLDENRULE_GPU_LEAST_SPLIT
constexpr const char* kLongLengths = "5,0,300,300";
#else
constexpr const char* kLongLengths = "5,0,4200,4200";
#endif

/// Half of the tokens are enough to be cut, and sequences may share them.
TEST_CASE("prefill any bound and slot of segments: nothing outside the buffers is touched") {
  REQUIRE_GPU();
  for_each_case("op={gdn,kda} mode=prefill lens=" + std::string(kLongLengths) +
                    " H=1 HV=1 K=128 V=128 h0=1 state={f32,bf16}",
                [](const LiveCase& c, const Record& record) {
                  for (std::uint64_t seed = 0; seed < 24; ++seed) {
                    run_hostile(c, record, seed, seed % 3 == 0, Asks::kNothing);
                  }
                });
}

goldenrule_gpu_prefill_report report_of(const goldenrule_gpu_prefill_args& args) {
  GuardedBuffer buffer("report", sizeof(goldenrule_gpu_prefill_report), 3);
  REQUIRE(goldenrule_gpu_prefill_check(&args,
                                       static_cast<goldenrule_gpu_prefill_report*>(buffer.data()),
                                       nullptr, 0) == GOLDENRULE_GPU_OK);
  gpu::check_cuda(cudaDeviceSynchronize(), "check");
  CHECK(buffer.violation() == "");
  goldenrule_gpu_prefill_report report;
  std::memcpy(&report, buffer.download().data(), sizeof report);
  return report;
}

TEST_CASE("prefill the checking kernel reports what only the device can see") {
  REQUIRE_GPU();
  const Record record =
      record_of("op=gdn mode=prefill lens=20,0,33,7,1 H=1 HV=2 K=128 V=64 h0=1 index=i32");
  DeviceStates pool("pool", 9, record);
  DeviceStates rows("checkpoints", 6, record);
  LiveCall live(record);
  goldenrule_gpu_prefill_args& args = live.prefill_args();
  live.fit_workspace();
  goldenrule_gpu_prefill_report r = report_of(args);
  CHECK(r.first_start_out_of_range == -1);
  CHECK(r.bound_out_of_range + r.start_out_of_range + r.output_out_of_range + r.written_twice +
            r.read_after_write + r.checkpoint_out_of_order ==
        0);
  const DeviceList seqlens("cu_seqlens", {0, 20, 20, 10, 60, 62}, true);
  const DeviceList from("state_indices", {8, 100, 2, 3, -1}, false);
  const DeviceList to("output_state_indices", {3, 1, 7, -9, 7}, true);
  const DeviceList bounds("cu_checkpoints", {0, 3, 3, 4, 6, 6}, false);
  const DeviceList offsets("offsets", {5, 4, 20, 9, 50, 51}, false);
  args.state = pool.tensor();
  args.slots = 9;
  args.cu_seqlens = seqlens.tensor();
  args.state_indices = from.tensor();
  args.output_state_indices = to.tensor();
  args.checkpoints = rows.tensor();
  args.checkpoint_rows = 6;
  args.cu_checkpoints = bounds.tensor();
  args.checkpoint_offsets = offsets.tensor();
  live.fit_workspace();
  r = report_of(args);
  CHECK(r.start_out_of_range == 1);
  CHECK(r.first_start_out_of_range == 1);
  CHECK(r.output_out_of_range == 1);
  CHECK(r.first_output_out_of_range == 3);
  CHECK(r.written_twice == 0);  // sequence 4 is padded
  CHECK(r.read_after_write == 1);
  CHECK(r.first_read_after_write == 3);
  CHECK(r.bound_out_of_range == 2);  // 20 to 10, and 60 to 62 of 61
  CHECK(r.first_bound_out_of_range == 2);
  CHECK(r.checkpoint_out_of_order == 3);  // 4 behind 5; 9 of none; 51 of 50
  CHECK(r.first_checkpoint_out_of_order == 1);
}

TEST_CASE("prefill a slot written twice is reported, and a first bound that is not 0") {
  REQUIRE_GPU();
  const Record record =
      record_of("op=gdn mode=prefill lens=20,0,33,7,1 H=1 HV=2 K=128 V=64 h0=1 index=i32");
  DeviceStates pool("pool", 9, record);
  const DeviceList seqlens("cu_seqlens", {2, 20, 20, 30, 40, 41}, false);
  const DeviceList from("state_indices", {8, 1, 2, 1, 5}, false);
  LiveCall live(record);
  live.prefill_args().state = pool.tensor();
  live.prefill_args().slots = 9;
  live.prefill_args().cu_seqlens = seqlens.tensor();
  live.prefill_args().state_indices = from.tensor();
  live.fit_workspace();
  const goldenrule_gpu_prefill_report r = report_of(live.prefill_args());
  CHECK(r.written_twice == 1);
  CHECK(r.first_written_twice == 3);
  CHECK(r.read_after_write == 2);
  CHECK(r.first_read_after_write == 1);
  CHECK(r.bound_out_of_range == 1);
  CHECK(r.first_bound_out_of_range == 0);
}

TEST_CASE("prefill a refused call launches nothing and writes nothing") {
  REQUIRE_GPU();
  using Args = goldenrule_gpu_prefill_args;
  const std::vector<std::function<void(Args&)>> spoils = {
      [](Args& a) { a.K = 257; },
      [](Args& a) { a.slots = 1; },
      [](Args& a) { a.cu_seqlens.data = nullptr; },
      [](Args& a) { a.state.dtype = GOLDENRULE_GPU_F16; },
      [](Args& a) { a.k.data = static_cast<char*>(a.k.data) + 1; },
  };
  const Record record = record_of("op=gdn mode=prefill lens=9,3 H=2 HV=4 K=128 V=128 h0=1");
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  for (const auto& spoil : spoils) {
    LiveCall live(record);
    Args args = live.prefill_args();
    spoil(args);
    char message[256] = "";
    CHECK(goldenrule_gpu_prefill(&args, message, sizeof message) != GOLDENRULE_GPU_OK);
    CHECK(message[0] != '\0');
    live.synchronize();
    CHECK(live.stray_write({.o = false, .final_state = {false, false}, .kept_states = {}}) == "");
  }
  CHECK(goldenrule_gpu_dispatch_hits() == hits);
}

}  // namespace
}  // namespace goldenrule::test
