// SPDX-License-Identifier: Apache-2.0
//
// Calls from where an engine makes them: two host threads, two devices of one host, and a capture
// that is the first that a process asks of the library. Each call has memory of its own and must
// give the bits of the same call made alone.
#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/judge.hpp"

namespace goldenrule::test {
namespace {

using call::TensorMap;

// One case of each kernel group, and both rules.
constexpr std::array kLines{
    "op=gdn mode=decode B=24 H=2 HV=4 K=128 V=128 separate=1",
    "op=kda mode=mtp B=12 T=5 H=2 HV=4 K=128 V=128 keeps=0 separate=1",
    "op=gdn mode=mtp B=3 T=3 H=2 HV=4 K=96 V=40 keeps=0 separate=1",
    "op=gdn mode=prefill lens=200,64,3 H=2 HV=4 K=128 V=128 gate=log h0=1 separate=1",
    "op=kda mode=prefill lens=130,70 H=2 HV=4 K=128 V=128 gate=log h0=1 separate=1",
    "op=attention mode=decode lens=4,20 ctx=130,70 H=1 HV=4 K=128 V=128",
};

LiveCall make_call(const char* line) {
  const LiveCase c = parse_list(line).front();
  return LiveCall(make_record(c), c.placement);
}

/// The outputs of every line on the current device, launched `runs` times on a stream of its own;
/// empty for a line of which one run had other bits than the one before.
std::vector<TensorMap> run_lines(int runs) {
  const gpu::Stream stream = gpu::make_stream();
  std::vector<TensorMap> all;
  for (const char* line : kLines) {
    LiveCall live = make_call(line);
    TensorMap first;
    for (int run = 0; run < runs; ++run) {
      live.launch(stream.get());
      gpu::check_cuda(cudaStreamSynchronize(stream.get()), line);
      const TensorMap outputs = live.outputs();
      if (run == 0) first = outputs;
      if (!difference(first, outputs).empty() || !live.stray_write().empty()) first.clear();
      if (first.empty()) break;
    }
    all.push_back(std::move(first));
  }
  return all;
}

/// Runs f(0) and f(1) in two threads that begin at once; the text of the first exception, or "".
template <class F>
std::string in_two_threads(F&& f) {
  std::barrier begin(2);
  std::array<std::string, 2> problems;
  const auto body = [&](int i) {
    begin.arrive_and_wait();
    try {
      f(i);
    } catch (const std::exception& e) {
      problems[static_cast<std::size_t>(i)] = e.what();
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return problems[0].empty() ? problems[1] : problems[0];
}

void check_same(const std::vector<TensorMap>& expected, const std::vector<TensorMap>& actual) {
  REQUIRE(expected.size() == kLines.size());
  REQUIRE(actual.size() == kLines.size());
  for (std::size_t i = 0; i < kLines.size(); ++i) {
    CAPTURE(kLines[i]);
    REQUIRE(!expected[i].empty());
    REQUIRE(!actual[i].empty());
    CHECK(difference(expected[i], actual[i]) == "");
  }
}

// Where this test has a process of its own, as in CTest, the threads also make the first calls of
// the process, so that both find the kernels not loaded.
TEST_CASE("two host threads at once: the bits of one") {
  REQUIRE_GPU();
  std::array<std::vector<TensorMap>, 2> found;
  CHECK(in_two_threads([&](int i) { found[static_cast<std::size_t>(i)] = run_lines(50); }) == "");
  const std::vector<TensorMap> alone = run_lines(1);
  for (const std::vector<TensorMap>& outputs : found) check_same(alone, outputs);
}

TEST_CASE("two devices of one host, in turn and from two threads: the bits of one") {
  REQUIRE_GPU();
  if (gpu::device_count() < 2) {
    std::puts("SKIPPED: one CUDA device");
    return;
  }
  const auto use = [](int device) { gpu::check_cuda(cudaSetDevice(device), "cudaSetDevice"); };
  cudaDeviceProp first{}, second{};
  gpu::check_cuda(cudaGetDeviceProperties(&first, 0), "cudaGetDeviceProperties");
  gpu::check_cuda(cudaGetDeviceProperties(&second, 1), "cudaGetDeviceProperties");
  // Devices that differ may be served by different kernels.
  REQUIRE(std::string(first.name) == second.name);

  std::array<std::vector<TensorMap>, 2> turns, threads;
  for (const int device : {1, 0}) {  // values kept for the process would be those of device 1
    use(device);
    turns[static_cast<std::size_t>(device)] = run_lines(2);
  }
  CHECK(in_two_threads([&](int i) {
          use(i);
          threads[static_cast<std::size_t>(i)] = run_lines(50);
        }) == "");
  use(0);
  check_same(turns[0], turns[1]);
  check_same(turns[0], threads[0]);
  check_same(turns[0], threads[1]);
}

// The header asks for goldenrule_gpu_initialize before a capture. The first launch may then be a
// captured one; without it a capture is either refused with a status or right.
void check_first_call_in_capture() {
  for (const char* line : kLines) {
    CAPTURE(line);
    LiveCall captured = make_call(line), plain = make_call(line);
    const gpu::Stream stream = gpu::make_stream();
    const gpu::GraphExec graph =
        gpu::capture(stream.get(), [&](cudaStream_t s) { captured.launch(s); });
    gpu::check_cuda(cudaGraphLaunch(graph.get(), stream.get()), "graph");
    gpu::check_cuda(cudaStreamSynchronize(stream.get()), "graph");
    CHECK(captured.stray_write() == "");
    plain.launch();
    plain.synchronize();
    CHECK(difference(plain.outputs(), captured.outputs()) == "");
  }
}

TEST_CASE("the first launch of a process is a captured one") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  check_first_call_in_capture();
}

TEST_CASE("the first call of a process is in a capture, without initialize") {
  REQUIRE_GPU();
  std::string refusal;
  try {
    check_first_call_in_capture();
  } catch (const Error& e) {
    refusal = e.what();
  }
  if (refusal.empty()) return;
  MESSAGE(refusal);
  CHECK(refusal.find("goldenrule_gpu_") != std::string::npos);  // a status, with its message
}

}  // namespace
}  // namespace goldenrule::test
