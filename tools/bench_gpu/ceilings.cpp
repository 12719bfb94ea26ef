// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/ceilings.hpp"

#include <cstdio>

#include "tools/bench_gpu/streaming.hpp"
#include "tools/bench_gpu/timing.hpp"

namespace goldenrule::bench {
namespace {

/// Best rate over the block sizes, counting bytes read plus bytes written.
double ceiling(Stream kind, std::size_t bytes, cudaStream_t stream, int replays) {
  constexpr std::size_t kTotal = std::size_t{2} << 30;
  const gpu::DeviceMemory memory = gpu::allocate_device(kTotal);
  launch_fill(Fill::kF32, memory.get(), kTotal / 4, 1.f, 7, stream);
  const int sets = static_cast<int>(kTotal / bytes);
  double best = 0;
  for (const int blocks : {2, 4, 8}) {
    const Timing t = time_graph(stream, sets, replays, [&](int i, cudaStream_t s) {
      char* at = static_cast<char*>(memory.get()) + static_cast<std::size_t>(i) * bytes;
      launch_stream(kind, at, bytes, blocks, s);
    });
    const auto moved = static_cast<std::int64_t>(kind == Stream::kInPlace ? 2 * bytes : bytes);
    best = std::max(best, terabytes(moved, t.median_us));
  }
  return best;
}

}  // namespace

Ceilings print_ceilings(cudaStream_t stream, int replays, int multiprocessors) {
  Ceilings best;
  std::printf("streaming ceilings, TB/s (read + written)\n  %-10s %9s %9s %9s %9s\n", "bytes",
              "in place", "read", "write", "copy");
  for (const std::size_t mib : {2u, 8u, 32u, 128u, 512u, 2048u}) {
    const std::size_t bytes = mib << 20;
    best.in_place = ceiling(Stream::kInPlace, bytes, stream, replays);
    best.read = ceiling(Stream::kRead, bytes, stream, replays);
    best.write = ceiling(Stream::kWrite, bytes, stream, replays);
    std::printf("  %4zu MiB   %9.2f %9.2f %9.2f %9.2f\n", mib, best.in_place, best.read, best.write,
                ceiling(Stream::kCopy, bytes, stream, replays));
  }
  const gpu::DeviceMemory memory = gpu::allocate_device(kFmaThreads * sizeof(float));
  const int blocks = 8 * multiprocessors;
  const Timing t = time_graph(stream, 1, std::min(replays, 5),
                              [&](int, cudaStream_t s) { launch_fma(memory.get(), blocks, s); });
  best.fma = 2.0 * kFmaPerThread * kFmaThreads * blocks / t.median_us * 1e-6;
  std::printf("fp32 fused multiply-add: %.1f TFLOP/s\n\n", best.fma);
  return best;
}

}  // namespace goldenrule::bench
