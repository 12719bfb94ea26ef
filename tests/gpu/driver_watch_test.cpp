// SPDX-License-Identifier: Apache-2.0
//
// On a device: what the CUDA runtime asks of the driver passes by the counter (driver_calls.hpp).
#include "tests/gpu/driver_calls.hpp"
#include "tests/gpu/gpu_test.hpp"

namespace goldenrule::test {
namespace {

template <class F>
DriverCalls calls_of(F&& f) {
  const DriverCalls before = driver_calls();
  gpu::check_cuda(f(), "a counted call");
  return driver_calls().since(before);
}

TEST_CASE("driver calls: allocations, copies, waits and loads of the runtime are counted") {
  REQUIRE_GPU();
  CHECK(watched_driver_functions() > 100);
  void* memory = nullptr;
  CHECK(calls_of([&] { return cudaMalloc(&memory, 1 << 20); })[DriverCall::kAllocate] > 0);
  std::uint32_t bits = 0;
  CHECK(calls_of([&] {
          return cudaMemcpy(&bits, memory, sizeof bits, cudaMemcpyDeviceToHost);
        })[DriverCall::kCopy] > 0);
  CHECK(calls_of([] { return cudaDeviceSynchronize(); })[DriverCall::kWait] > 0);
  const gpu::Stream stream = gpu::make_stream();
  CHECK(calls_of([&] { return cudaStreamSynchronize(stream.get()); })[DriverCall::kWait] > 0);
  gpu::check_cuda(cudaFree(memory), "cudaFree");
#if CUDART_VERSION >= 12080
  constexpr const char* kEmptyKernel =
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  cudaLibrary_t library = nullptr;
  CHECK(calls_of([&] {
          return cudaLibraryLoadData(&library, kEmptyKernel, nullptr, nullptr, 0, nullptr, nullptr,
                                     0);
        })[DriverCall::kLoad] > 0);
  gpu::check_cuda(cudaLibraryUnload(library), "cudaLibraryUnload");
#endif
}

}  // namespace
}  // namespace goldenrule::test
