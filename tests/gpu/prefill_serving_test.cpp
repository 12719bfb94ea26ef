// SPDX-License-Identifier: Apache-2.0
//
// Prefill as a server runs it: states and tokens beyond 2^31 elements, lengths that change from
// call to call without an allocation, launches that wait for nothing.
#include <algorithm>
#include <atomic>

#include "fixtures/random/philox.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/high_slot.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;

TEST_CASE("prefill slots beyond 2^31 elements") {
  REQUIRE_GPU();
  if (!has_room_for_high_slot()) {
    std::puts("SKIPPED: less than 11 GiB of device memory free");
    return;
  }
  for (const LiveCase& c :
       parse_list("op={gdn,kda} mode=prefill lens=9 H=16 HV=32 K=128 V=128 state=f32 h0=1 "
                  "index=i32 state_layout={vk,kv} shift={0,1}")) {
    CHECK_MESSAGE(high_slot_complaint(c, {}) == "", canonical(c));
  }
}

/// v and o with 2^24 elements between tokens: the last ones lie beyond 2^31 elements.
TEST_CASE("prefill tokens beyond 2^31 elements") {
  REQUIRE_GPU();
  constexpr std::size_t kStep = std::size_t{1} << 25;  // bytes between tokens
  constexpr std::int64_t kTokens = 140;
  std::size_t free = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (free < 2 * kTokens * kStep + (std::size_t{1} << 30)) {
    std::puts("SKIPPED: less than 11 GiB of device memory free");
    return;
  }
  const gpu::DeviceMemory v = gpu::allocate_device(kTokens * kStep);
  const gpu::DeviceMemory o = gpu::allocate_device(kTokens * kStep);
  for_each_case("op={gdn,kda} mode=prefill lens=3,137 H=2 HV=4 K=128 V={128,60} h0=1",
                [&](const LiveCase& c, const Record& record) {
                  const Tensor& values = record.inputs.at("v");
                  const std::size_t row = values.bytes().size() / kTokens;
                  gpu::check_cuda(cudaMemcpy2D(v.get(), kStep, values.bytes().data(), row, row,
                                               kTokens, cudaMemcpyHostToDevice),
                                  "v");
                  LiveCall live(record, c.placement);
                  goldenrule_gpu_prefill_args& args = live.prefill_args();
                  args.v.data = v.get();
                  args.o.data = o.get();
                  for (goldenrule_gpu_tensor* t : {&args.v, &args.o}) {
                    t->stride[0] = kStep / 2;
                    t->stride[1] = args.V;
                  }
                  live.launch();
                  live.synchronize();
                  Bytes result(row * kTokens);
                  gpu::check_cuda(cudaMemcpy2D(result.data(), row, o.get(), kStep, row, kTokens,
                                               cudaMemcpyDeviceToHost),
                                  "o");
                  const call::TensorMap dense = outputs_of(record);
                  CHECK(first_difference("o", dense.at("o").bytes(), result) == "");
                  CHECK(first_difference("state", dense.at("final_state").bytes(),
                                         live.outputs().at("final_state").bytes()) == "");
                });
}

TEST_CASE("prefill 300 calls of changing lengths: no miss, no allocation") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  constexpr std::int64_t kSequences = 6, kTokens = 600;
  const Record record =
      record_of("op=gdn mode=prefill lens=6x100 H=2 HV=8 K=128 V=128 h0=1 index=i32");
  LiveCall live(record);
  const gpu::Stream stream = gpu::make_stream();
  live.launch(stream.get());
  live.synchronize();
  const std::uint64_t hits = goldenrule_gpu_dispatch_hits();
  const std::uint64_t misses = goldenrule_gpu_dispatch_misses();
  std::size_t free_before = 0, free_after = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free_before, &total), "cudaMemGetInfo");
  std::vector<std::int32_t> bounds(kSequences + 1);
  const random::Stream lengths(5, "lengths");
  constexpr int kCalls = 300;
  for (std::int64_t call = 0; call < kCalls; ++call) {
    for (std::int64_t n = 0; n <= kSequences; ++n) {
      bounds[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(
          lengths.bits(call * kSequences + n) % static_cast<std::uint64_t>(kTokens));
    }
    std::ranges::sort(bounds);
    gpu::check_cuda(
        cudaMemcpyAsync(live.prefill_args().cu_seqlens.data, bounds.data(),
                        bounds.size() * sizeof bounds[0], cudaMemcpyHostToDevice, stream.get()),
        "bounds");
    live.prefill_args().N = 1 + call % kSequences;
    live.launch(stream.get());
    gpu::check_cuda(cudaStreamSynchronize(stream.get()), "call");
  }
  gpu::check_cuda(cudaMemGetInfo(&free_after, &total), "cudaMemGetInfo");
  CHECK(goldenrule_gpu_dispatch_hits() >= hits + kCalls);
  CHECK(goldenrule_gpu_dispatch_misses() == misses);
  CHECK(free_after == free_before);
}

TEST_CASE("prefill a launch does not wait for the stream") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  Record record = record_of("op=gdn mode=prefill lens=70,9 H=2 HV=4 K=128 V=128 h0=1");
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
  record.contract = live.contract();
  Tally tally;
  CHECK(judge(record, false, tally) == "");
}

}  // namespace
}  // namespace goldenrule::test
