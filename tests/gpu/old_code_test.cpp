// SPDX-License-Identifier: Apache-2.0
//
// Code that the driver compiled. PTX for 8.0 does not wait for the kernel in front, on whatever
// device it runs: launched with the attribute of dependent launch it reads what that kernel has not
// written yet. And kernels that only 9.0 has are missing where a driver is made to compile PTX
// (CUDA_FORCE_PTX_JIT); jit_test.sh runs these and others so.
#include <cstdlib>

#include "gpu/launch/kernel_table.hpp"
#include "gpu/launch/launch_kernel.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"
#include "tests/gpu/old_code.hpp"
#include "tests/gpu/producer.hpp"

namespace goldenrule::test {
namespace {

constexpr int kEarly = 1, kLate = 7;

gpu::Kernel old_kernel(int /*i*/) {
  return {.function = kernel_of_old_code(), .threads = 1, .name = "old code"};
}

/// One int in device memory that a producer writes late, and what a kernel behind it read.
class LateInt {
 public:
  LateInt() {
    const Delivery delivery{at(1), at(0), sizeof(int)};
    copy(list_.get(), &delivery, sizeof delivery);
  }
  /// `launch(CopyOfOne&, stream)` launches the kernel behind the producer.
  template <class F>
  int read_behind_producer(cudaStream_t stream, F&& launch) {
    const int values[] = {kLate, kEarly, 0};
    copy(at(0), values, sizeof values);
    launch_producer(static_cast<const Delivery*>(list_.get()), 1, stream);
    CopyOfOne parameter{at(2), at(1)};
    launch(parameter, stream);
    gpu::check_cuda(cudaStreamSynchronize(stream), "old code");
    int read = 0;
    copy(&read, at(2), sizeof read);
    return read;
  }

 private:
  [[nodiscard]] int* at(int i) const { return static_cast<int*>(ints_.get()) + i; }
  static void copy(void* to, const void* from, std::size_t bytes) {
    gpu::check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copy");
  }
  gpu::DeviceMemory ints_ = gpu::allocate_device(3 * sizeof(int));
  gpu::DeviceMemory list_ = gpu::allocate_device(sizeof(Delivery));
};

TEST_CASE("old code: a dependent launch of code that cannot wait is none") {
  REQUIRE_GPU();
  gpu::Device device;
  REQUIRE(gpu::current_device(device).ok());
  if (device.capability < 90) {
    std::puts("SKIPPED: a device without dependent launch");
    return;
  }
  gpu::KernelTable table(1, old_kernel);
  REQUIRE(table.prepare(device).ok());
  CHECK(!table.can_depend(0, device.id));
  const gpu::Stream stream = gpu::make_stream();
  LateInt late;
  CHECK(late.read_behind_producer(stream.get(), [&](CopyOfOne& parameter, cudaStream_t s) {
    const gpu::LaunchPlan plan{.device = device.id, .blocks = 1, .dependent = true};
    CHECK(table.launch(0, plan, &parameter, s).ok());
  }) == kLate);
  // The control: with the attribute the same code reads too early, unless the host was too late.
  bool too_early = false;
  for (int i = 0; i < 20 && !too_early; ++i) {
    too_early = late.read_behind_producer(stream.get(), [](CopyOfOne& parameter, cudaStream_t s) {
      void* arguments[] = {&parameter};
      const gpu::Grid grid{.blocks = 1, .threads = 1, .dependent = true};
      CHECK(gpu::launch_kernel(kernel_of_old_code(), grid, arguments, s).ok());
    }) == kEarly;
  }
  CHECK(too_early);
}

/// Whether a kernel is one of instructions that 9.0 alone has.
bool is_of_one_architecture(const std::string& name) {
  const bool tuned_prefill = name.starts_with("prefill_gdn_") || name.starts_with("prefill_kda_");
  return (tuned_prefill && !name.ends_with("_chunk8")) ||
         (name.starts_with("attention_") && name != "attention_plain");
}
std::uint64_t hits_of_one_architecture() {
  std::uint64_t hits = 0;
  for (const auto& [name, count] : hits_by_name()) hits += is_of_one_architecture(name) ? count : 0;
  return hits;
}

TEST_CASE("old code: what only 9.0 has is served by others where it is missing") {
  REQUIRE_GPU();
  gpu::Device device;
  REQUIRE(gpu::current_device(device).ok());
  const bool missing = device.capability != 90 || std::getenv("CUDA_FORCE_PTX_JIT") != nullptr;
  for (const char* line :
       {"op=gdn mode=prefill lens=70,9 H=1 HV=2 K=128 V=128",
        "op=kda mode=prefill lens=70,9 H=1 HV=2 K=128 V=128",
        "op=attention mode=decode lens=4,16 ctx=130,70 H=1 HV=4 K=128 V=128 splits=4"}) {
    const std::uint64_t before = hits_of_one_architecture();
    CHECK(complaint_of(line) == "");
    CHECK_MESSAGE((hits_of_one_architecture() == before) == missing, line);
  }
}

}  // namespace
}  // namespace goldenrule::test
