// SPDX-License-Identifier: Apache-2.0
//
// Time of one launch inside a replayed CUDA graph of n launches: what a serving engine pays, the
// gaps between kernels included. Median of the replays; the spread is from the 10th to the 90th
// percentile.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::bench {

struct Timing {
  double median_us = 0, low_us = 0, high_us = 0;  ///< of one launch
};

/// `launch(i, stream)` launches set i of `sets`. Replays until at least `replays` were timed.
/// Short graphs are lengthened to `least` launches: the events cost a microsecond or two of their
/// own.
inline Timing time_graph(cudaStream_t stream, int sets, int replays,
                         const std::function<void(int, cudaStream_t)>& launch, int least = 32) {
  const int launches = std::max(sets, (least + sets - 1) / sets * sets);
  const gpu::GraphExec graph = gpu::capture(stream, [&](cudaStream_t s) {
    for (int i = 0; i < launches; ++i) launch(i % sets, s);
  });
  const gpu::Event begin = gpu::make_event(), end = gpu::make_event();
  std::vector<double> us;
  constexpr int kWarmup = 3;
  for (int i = 0; i < kWarmup + replays; ++i) {
    gpu::check_cuda(cudaEventRecord(begin.get(), stream), "record");
    gpu::check_cuda(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch");
    gpu::check_cuda(cudaEventRecord(end.get(), stream), "record");
    gpu::check_cuda(cudaEventSynchronize(end.get()), "replay");
    float ms = 0;
    gpu::check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "elapsed");
    if (i >= kWarmup) us.push_back(1e3 * static_cast<double>(ms) / launches);
  }
  std::ranges::sort(us);
  const auto at = [&](double p) {
    return us[static_cast<std::size_t>(p * static_cast<double>(us.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

}  // namespace goldenrule::bench
