// SPDX-License-Identifier: Apache-2.0
//
// The host execution itself, with small kernels: right ones are right in every order of threads,
// and each mistake that it is there for is seen, by a wrong result or by a launch that says why it
// failed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gpu/ptx/bulk_copy.cuh"
#include "gpu/ptx/grid_dependency.cuh"
#include "gpu/ptx/matrix.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu::prefill {
extern __shared__ __align__(1024) char memory[];
}

namespace goldenrule::test {
namespace {

namespace ptx = gpu::ptx;
using gpu::prefill::memory;

constexpr int kThreads = 128;
constexpr unsigned kLanes = 0xffffffffU;

/// Runs a kernel on `values` and returns what is in them then; "" in `failure` or why it failed.
template <class T, class... P, class... A>
std::vector<T> launch(void (*kernel)(T*, P...), std::vector<T> values, std::string& failure,
                      unsigned blocks, A... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = 32 << 10;
  CHECK(cudaLaunchKernelEx(&config, kernel, values.data(), arguments...) == cudaSuccess);
  const cudaError_t error = cudaDeviceSynchronize();
  failure = simt::take_failure();
  CHECK((error == cudaSuccess) == failure.empty());
  static_cast<void>(cudaGetLastError());
  return values;
}
template <class T, class... P, class... A>
std::vector<T> run(void (*kernel)(T*, P...), std::vector<T> values, A... arguments) {
  std::string failure;
  std::vector<T> result = launch(kernel, std::move(values), failure, 1, arguments...);
  CHECK(failure == "");
  return result;
}
template <class T, class... P, class... A>
std::string failure_of(void (*kernel)(T*, P...), std::vector<T> values, A... arguments) {
  std::string failure;
  static_cast<void>(launch(kernel, std::move(values), failure, 1, arguments...));
  return failure;
}
bool says(const std::string& failure, const char* words) {
  return failure.find(words) != std::string::npos;
}

std::vector<int> count_up(int count) {
  std::vector<int> x(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = i;
  return x;
}

__global__ void reverse(int* x, bool synchronized) {
  auto* shared = reinterpret_cast<int*>(memory);
  shared[threadIdx.x] = x[threadIdx.x];
  if (synchronized) __syncthreads();
  x[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST_CASE("host execution: a barrier orders, and without it threads read what is not there yet") {
  for (int i = 0; i < 20; ++i) {
    const std::vector<int> x = run(reverse, count_up(kThreads), true);
    for (int t = 0; t < kThreads; ++t) CHECK(x[static_cast<std::size_t>(t)] == kThreads - 1 - t);
    CHECK(run(reverse, count_up(kThreads), false) != x);
  }
}

__global__ void reduce(int* x) {
  int sum = x[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kLanes, sum, step);
  const unsigned odd = __ballot_sync(kLanes, x[threadIdx.x] % 2);
  const int before = __shfl_up_sync(kLanes, x[threadIdx.x], 1U);
  x[threadIdx.x] = odd == 0xaaaaaaaaU ? sum + 1000 * before : -1;
}

TEST_CASE("host execution: lanes exchange what they hold") {
  const std::vector<int> x = run(reduce, count_up(kThreads));
  for (int t = 0; t < kThreads; ++t) {
    const int first = t / 32 * 32;
    const int before = t == first ? t : t - 1;
    CHECK(x[static_cast<std::size_t>(t)] == 32 * first + 31 * 16 + 1000 * before);
  }
}

__global__ void meet_apart(int* x) {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    x[threadIdx.x] = __shfl_sync(kLanes, 1, 0);
  }
}
__global__ void leave_early(int* x) {
  if (threadIdx.x == 5) return;
  x[threadIdx.x] = __shfl_sync(kLanes, 1, 0);
}
__global__ void barrier_in_branch(int* x) {
  if (threadIdx.x < 64) {
    ptx::synchronize_threads<kThreads>(1);
    x[threadIdx.x] = 0;
  }
}

TEST_CASE("host execution: threads that cannot meet: the launch fails and says where") {
  const std::vector<int> x = count_up(kThreads);
  CHECK(says(failure_of(meet_apart, x), "lanes of a warp meet at different instructions"));
  // Either the others find that it has ended, or it ends while they wait.
  const std::string early = failure_of(leave_early, x);
  CHECK((says(early, "a shuffle expects a lane that has ended") ||
         says(early, "wait for a shuffle")));
  CHECK(says(failure_of(barrier_in_branch, x), "64 threads (0 first) wait for a named barrier"));
}

/// Which groups of copies are waited for before the first is read.
__global__ void copy_twice(int* x, const int* from, bool waits_for_first) {
  auto* shared = reinterpret_cast<int*>(memory) + 2 * threadIdx.x;
  ptx::copy_async_4(shared, from + threadIdx.x);
  ptx::commit_copies();
  ptx::copy_async_4(shared + 1, from);
  ptx::commit_copies();
  if (waits_for_first) {
    ptx::wait_for_copies_but<1>();
  } else {
    ptx::wait_for_copies_but<2>();
  }
  x[threadIdx.x] = shared[0];
  ptx::wait_for_copies();
}

TEST_CASE("host execution: an asynchronous copy lands at its wait and not before") {
  const std::vector<int> from = count_up(kThreads);
  const std::vector<int> none(kThreads, 7);
  CHECK(run(copy_twice, none, from.data(), true) == from);
  CHECK(run(copy_twice, none, from.data(), false) == std::vector<int>(kThreads, -1));
}

__global__ void copy_changing(int* x, int wave) {
  auto* shared = reinterpret_cast<int*>(memory) + threadIdx.x;
  ptx::copy_async_4(shared, x + threadIdx.x);
  if (wave == 1) x[threadIdx.x] = -7;
  ptx::wait_for_copies();
  x[threadIdx.x] = *shared + 1;
}
TEST_CASE("host execution: a source may not change while it is copied") {
  CHECK(
      says(failure_of(copy_changing, count_up(kThreads), 1), "has changed while it was under way"));
  CHECK(failure_of(copy_changing, count_up(kThreads), 0) == "");
}

struct BulkRun {
  const int* from;
  std::uint32_t expected_bytes;
  bool waits;
};
__global__ void copy_block(int* x, BulkRun r) {
  auto* shared = reinterpret_cast<int*>(memory);
  auto& barrier = *reinterpret_cast<std::uint64_t*>(memory + 4096);
  if (threadIdx.x == 0) ptx::initialize_barrier(barrier, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::arrive_expecting(barrier, r.expected_bytes);
    ptx::copy_bulk(shared, r.from, 4 * kThreads, barrier);
  }
  __syncthreads();
  if (r.waits) ptx::wait_for_phase(barrier, 0);
  x[threadIdx.x] = shared[threadIdx.x];
  __syncthreads();
  if (!r.waits) ptx::wait_for_phase(barrier, 0);
}

TEST_CASE(
    "host execution: a bulk copy lands when its barrier is waited for, and its bytes are counted") {
  const std::vector<int> from = count_up(kThreads);
  const std::vector<int> none(kThreads, 7);
  CHECK(run(copy_block, none, BulkRun{from.data(), 4 * kThreads, true}) == from);
  CHECK(run(copy_block, none, BulkRun{from.data(), 4 * kThreads, false}) ==
        std::vector<int>(kThreads, -1));
  CHECK(says(failure_of(copy_block, none, BulkRun{from.data(), 4 * kThreads + 16, true}),
             "wait for a counted barrier"));
  CHECK(says(failure_of(copy_block, none, BulkRun{from.data() + 1, 4 * kThreads, true}),
             "not aligned to 16 bytes"));
}

/// Block 0 makes numbers and raises a flag, block 1 waits for it and copies them.
__global__ void pass_on(int* x, bool flag_first) {
  int* flag = x + 2 * kThreads;
  if (blockIdx.x == 0) {
    if (flag_first && threadIdx.x == 0) ptx::store_release(flag, 1);
    x[threadIdx.x] = 1;
    __syncthreads();
    if (!flag_first && threadIdx.x == 0) ptx::store_release(flag, 1);
  } else {
    while (ptx::load_acquire(flag) == 0) {
    }
    x[kThreads + threadIdx.x] = x[threadIdx.x];
  }
}
std::vector<int> passed_on(bool flag_first) {
  std::string failure;
  std::vector<int> x =
      launch(pass_on, std::vector<int>(2 * kThreads + 1, 0), failure, 2, flag_first);
  CHECK(failure == "");
  return x;
}

TEST_CASE(
    "host execution: blocks may wait for each other, and see what was there when a flag was "
    "raised") {
  int early = 0;
  for (int i = 0; i < 20; ++i) {
    CHECK(passed_on(false) == std::vector<int>(2 * kThreads + 1, 1));
    early += passed_on(true) == std::vector<int>(2 * kThreads + 1, 1) ? 0 : 1;
  }
  CHECK(early > 0);
}

__global__ void wait_for_ever(int* x) {
  while (ptx::load_acquire(x) == 0) {
  }
}
TEST_CASE("host execution: a flag that nobody raises") {
  CHECK(
      says(failure_of(wait_for_ever, std::vector<int>(1, 0)), "wait for a flag in global memory"));
}

enum class Visible { kAtRead, kAtEnd };
/// Stores a block by the copy engine, and overwrites it in shared memory or reads the result.
__global__ void store_block(int* x, Visible waits_for) {
  auto* shared = reinterpret_cast<int*>(memory);
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::store_bulk(x, shared, 4 * kThreads);
    ptx::commit_bulk_stores();
    if (waits_for == Visible::kAtRead) ptx::wait_for_bulk_reads();
  }
  __syncthreads();
  shared[threadIdx.x] = -5;
  x[kThreads + threadIdx.x] = x[threadIdx.x];  // too early: nobody has waited for the store
}

TEST_CASE(
    "host execution: a bulk store reads at its wait, and is visible when the kernel has ended") {
  const std::vector<int> x = run(store_block, std::vector<int>(2 * kThreads, 7), Visible::kAtRead);
  for (int t = 0; t < kThreads; ++t) {
    CHECK(x[static_cast<std::size_t>(t)] == t);
    CHECK(x[static_cast<std::size_t>(kThreads + t)] == 7);
  }
  CHECK(says(failure_of(store_block, std::vector<int>(2 * kThreads, 7), Visible::kAtEnd),
             "before its bulk stores have read their source"));
}

__global__ void produce(int* x) {
  ptx::launch_dependents();
  x[threadIdx.x] = 1;
}
__global__ void consume(int* x, bool waits) {
  const int early = x[threadIdx.x];
  if (waits) ptx::wait_for_dependencies();
  x[kThreads + threadIdx.x] = x[threadIdx.x] + 10 * early;
}
std::vector<int> consumed(bool waits) {
  std::vector<int> x(2 * kThreads, 0);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(kThreads);
  CHECK(cudaLaunchKernelEx(&config, produce, x.data()) == cudaSuccess);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, consume, x.data(), waits) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  x.erase(x.begin(), x.begin() + kThreads);
  return x;
}

TEST_CASE("host execution: a dependent kernel sees the one in front of it from its wait on") {
  CHECK(consumed(true) == std::vector<int>(kThreads, 1));
  CHECK(consumed(false) == std::vector<int>(kThreads, 0));
}

}  // namespace
}  // namespace goldenrule::test
