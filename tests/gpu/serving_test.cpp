// SPDX-License-Identifier: Apache-2.0
//
// A thousand decode steps of a server: batch sizes and slots change at every step; nothing may be
// compiled, loaded or allocated, and no step may take much longer on the host than another.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("1,000 decode steps: no miss, no allocation") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  const call::Record record =
      record_of("op=gdn mode=decode B=48 H=2 HV=8 K=128 V=128 P=99 slots=permuted index=i32");
  LiveCall live(record);
  const gpu::Stream stream = gpu::make_stream();
  live.launch(stream.get());
  live.synchronize();

  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  const std::uint64_t misses = goldenrule_gpu_dispatch_misses();
  std::size_t free_before = 0, free_after = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free_before, &total), "cudaMemGetInfo");
  std::vector<std::int32_t> slots(48);
  std::vector<double> us;
  const random::Stream sizes(5, "batch sizes");
  constexpr int kSteps = 1000;
  for (int step = 0; step < kSteps; ++step) {
    const auto n = static_cast<std::uint64_t>(step);
    live.args().B = 1 + static_cast<std::int64_t>(sizes.bits(step) % 48);
    for (std::size_t b = 0; b < slots.size(); ++b) {
      slots[b] = static_cast<std::int32_t>((n * 7 + b) % 99);
    }
    gpu::check_cuda(
        cudaMemcpyAsync(live.args().state_indices.data, slots.data(),
                        slots.size() * sizeof slots[0], cudaMemcpyHostToDevice, stream.get()),
        "indices");
    const auto begin = std::chrono::steady_clock::now();
    live.launch(stream.get());
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
    gpu::check_cuda(cudaStreamSynchronize(stream.get()), "step");
  }
  gpu::check_cuda(cudaMemGetInfo(&free_after, &total), "cudaMemGetInfo");
  std::ranges::sort(us);
  std::printf("host time of a launch: median %.2f us, 99%% %.2f us, max %.2f us, max/median %.1f\n",
              us[500], us[990], us.back(), us.back() / us[500]);
  CHECK(goldenrule_gpu_dispatch_hits() == hits + kSteps);
  CHECK(goldenrule_gpu_dispatch_misses() == misses);
  CHECK(free_after == free_before);
}

TEST_CASE("a launch does not wait for the stream") {
  REQUIRE_GPU();
  // Only the first call of a process may wait, where nothing has loaded the kernels before.
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  call::Record record = record_of("op=gdn mode=decode B=2 H=2 HV=4 K=128 V=128");
  LiveCall live(record);
  const gpu::Stream stream = gpu::make_stream();
  std::atomic<bool> open{false};
  gpu::check_cuda(
      cudaLaunchHostFunc(
          stream.get(), [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); },
          &open),
      "cudaLaunchHostFunc");
  live.launch(stream.get());  // would never return if it waited
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  open = true;
  open.notify_all();
  gpu::check_cuda(cudaStreamSynchronize(stream.get()), "kernel");
  CHECK(live.stray_write() == "");
  record.outputs = live.outputs();
  Tally tally;
  CHECK(judge(record, false, tally) == "");
}

TEST_CASE("every entry of the dispatch table is reached") {
  REQUIRE_GPU();
  const std::map<std::string, std::uint64_t> before = hits_by_name();
  const auto run = [](const LiveCase& c, const call::Record& record) {
    static_cast<void>(outputs_of(record, c.placement));
  };
  // 148 rows of 4 heads fill three waves of tall tiles on 132 multiprocessors (select.cpp).
  for_each_case(kFamilies + "mode=mtp B={1,148} T={1,2,9} H=2 HV=4 K={48,96,128,200} V=128 keeps=0",
                run);
  for_each_case(kFamilies + "mode=decode B=600 H=2 HV=4 K=128 V=128", run);  // many waves
  for_each_case(kFamilies + "mode=mtp B=270 T=4 H=2 HV=4 K=128 V=128", run);
  for_each_case(kFamilies + "mode=mtp B=2 T=2 H=2 HV=4 K={48,96,128,200} V=128 ring=io", run);
  for_each_case(kFamilies + "mode=mtp B=40 T=2 H=2 HV=4 K=128 V=128 ring=io", run);
  for_each_case(kFamilies + "mode=mtp lens=2,1 H=2 HV=4 K={48,200} V=128 tree=mixed", run);
  for_each_case(kFamilies + "mode=prefill lens=70,3 H=2 HV=4 K={48,96,128,200} V=128 shift={0,1}",
                run);
  for_each_case(
      "op=attention mode=decode lens={4,20} ctx=130 H=1 HV=4 K={37,64,128} V={64,128} "
      "io={bf16,f16} splits={1,2,4,8,9,16}",
      run);
  for_each_case("op={gdn,kda} mode=prefill lens=70,3 H=2 HV=4 K=128 V=128 checkpoints=listed", run);
  for_each_case("op=kda mode=prefill lens=70,3 H=2 HV=4 K=128 V=128 gate=bounded", run);
  for_each_case("op={gdn,kda} mode=prefill lens=70,3 H=2 HV=4 K=128 V=128 precise=1", run);
  for_each_case("op={gdn,kda} mode=prefill lens=40x3 H=2 HV=4 K=128 V=128",
                run);  // heads for all blocks
  // One sequence in segments, and as many as fill a device.
  for_each_case("op={gdn,kda} mode=prefill lens=4100 H=1 HV=1 K=128 V=128", run);
  for_each_case("op={gdn,kda} mode=prefill lens=4100,1 H=1 HV=1 K=128 V=1024", run);
  for (const auto& row : hits_by_name()) {
    CHECK_MESSAGE(row.second > before.at(row.first), row.first);
  }
}

}  // namespace
}  // namespace goldenrule::test
