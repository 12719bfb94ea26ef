// SPDX-License-Identifier: Apache-2.0
//
// A pool beyond 8 GiB: 32-bit offsets of elements or bytes wrap long before its end (public kernels
// did so from slot 4,096 on). The same row in a low and in a high slot must give the same bits.
#include <cstring>

#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("slots beyond 2^31 elements") {
  REQUIRE_GPU();
  constexpr std::int64_t kSlots = 4600, kHigh = 4500, kLow = 3;
  std::size_t free = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  for (const StateLayout layout : {StateLayout::kVK, StateLayout::kKV}) {
    for (const std::int64_t T : {1, 2}) {
      Case c;
      c.layout = layout;
      c.B = 1;
      c.T = T;
      c.H = 16;
      c.HV = 32;
      c.slots = Slots::kPermuted;
      const Scenario s(c);
      const std::size_t slot_bytes = s.state.bytes().size() / static_cast<std::size_t>(s.pool);
      const std::size_t pool_bytes = slot_bytes * kSlots;
      if (free < pool_bytes + (std::size_t{1} << 30)) {
        std::puts("SKIPPED: less than 11 GiB of device memory free");
        return;
      }
      const gpu::DeviceMemory pool = gpu::allocate_device(pool_bytes);
      Bytes results[2];
      for (const std::int64_t slot : {kLow, kHigh}) {
        auto* at =
            static_cast<std::byte*>(pool.get()) + slot_bytes * static_cast<std::size_t>(slot);
        gpu::check_cuda(cudaMemset(pool.get(), 0, pool_bytes), "cudaMemset");
        gpu::check_cuda(cudaMemcpy(at, s.state.bytes().data(), slot_bytes, cudaMemcpyHostToDevice),
                        "upload");
        LiveCall live(s);
        live.args().state.data = pool.get();
        live.args().slots = kSlots;
        const auto index = static_cast<std::int32_t>(slot);
        gpu::check_cuda(cudaMemcpy(live.args().state_indices.data, &index, sizeof index,
                                   cudaMemcpyHostToDevice),
                        "index");
        live.launch();
        live.synchronize();
        Bytes& result = results[slot == kHigh ? 1 : 0];
        result.resize(slot_bytes);
        gpu::check_cuda(cudaMemcpy(result.data(), at, slot_bytes, cudaMemcpyDeviceToHost),
                        "result");
        const Bytes o = live.outputs().o;
        result.insert(result.end(), o.begin(), o.end());
        CHECK(std::memcmp(result.data(), s.state.bytes().data(), slot_bytes) != 0);
      }
      CHECK(first_difference("high slot", results[0], results[1]) == "");
    }
  }
}

}  // namespace
}  // namespace goldenrule::test
