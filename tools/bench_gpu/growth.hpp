// SPDX-License-Identifier: Apache-2.0
//
// A server that decodes block by block: the context grows through every edge of a page, the batch
// grows and shrinks, the table is allocated anew with exactly the width that it needs and the pool
// moves every 64 steps. The benchmark times the calls; tests/gpu judges every one in closed form.
//
// Queries are 0, so all keys weigh the same, and the value of key t has 1 at column t mod V and 0
// elsewhere. Whatever nobody may see is NaN.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/goldenrule_gpu.h"
#include "gpu/host/cuda_handles.hpp"
#include "tools/bench_gpu/host_times.hpp"

namespace goldenrule::bench {

struct Growth {
  static constexpr int kBlock = 16, kHeads = 2, kGroup = 2, kDim = 64, kPage = 32;
  static constexpr int kMostRequests = 33, kSteps = 4096, kStepsOfPool = 64;
  static constexpr std::size_t kRows = std::size_t{kBlock} * kHeads * kGroup;  ///< of a request

  /// 1 up to kMostRequests and down again.
  [[nodiscard]] static std::int64_t requests(int step) {
    const std::int64_t phase = step % (2 * kMostRequests - 2);
    return 1 + std::min<std::int64_t>(phase, 2 * kMostRequests - 2 - phase);
  }
  /// Cached tokens of the longest request.
  [[nodiscard]] static std::int64_t context(int step) { return std::int64_t{kBlock} * step + 1; }
  /// Pages of the table for it.
  [[nodiscard]] static std::int64_t width(std::int64_t context) {
    return std::max<std::int64_t>(1, (context + kPage - 1) / kPage);
  }
  /// Cached tokens of each request.
  [[nodiscard]] static std::vector<std::int32_t> lengths(int step);
};

/// What one step gives to the kernel; its tensors live until the next.
struct GrowthStep {
  int number = 0;
  std::vector<std::int32_t> lengths;
  std::int64_t width = 0;
  goldenrule_gpu_attention_args args{};
};

class GrowthLoop {
 public:
  explicit GrowthLoop(int steps);
  /// Calls `visit` for every step, whose call it makes; o and lse are those of all steps.
  void run(const std::function<void(const GrowthStep&)>& visit);
  [[nodiscard]] const gpu::DeviceMemory& o() const { return o_; }
  [[nodiscard]] const gpu::DeviceMemory& lse() const { return lse_; }

 private:
  int steps_;
  gpu::DeviceMemory q_, o_, lse_;
};

/// Makes the call and returns the microseconds that the host took. Throws Error on a refusal.
double timed_call(const goldenrule_gpu_attention_args& args);

struct GrowthReport {
  HostTimes times;
  std::uint64_t misses = 0, launches = 0;  ///< of the dispatch table, meanwhile
};
/// Every call of the loop, waited for outside of its time. After goldenrule_gpu_initialize.
[[nodiscard]] GrowthReport measure_growth(int steps = Growth::kSteps);

}  // namespace goldenrule::bench
