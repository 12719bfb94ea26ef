// SPDX-License-Identifier: Apache-2.0
//
// Calls of attention on random numbers, in as many sets of buffers as no cache of the device holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/goldenrule_gpu.h"
#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::bench {

/// One block of tokens for each of `requests` requests, all with `context` cached tokens.
struct AttentionRow {
  std::int64_t requests = 1, context = 1024, block = 16;
  double goal_us = 0, peer_us = 0;  ///< of other runs; 0: none
  std::int64_t page = 64;
  std::int64_t splits = 0;

  static constexpr std::int64_t kHeads = 8, kQueryHeads = 32, kDim = 128;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::int64_t cache_bytes() const;  ///< of keys, and as many of values
  [[nodiscard]] std::int64_t bytes_read() const;
  [[nodiscard]] std::int64_t bytes_written() const;
};

class AttentionWorkload {
 public:
  explicit AttentionWorkload(const AttentionRow& row);

  [[nodiscard]] int sets() const { return static_cast<int>(sets_.size()); }
  void launch(int set, cudaStream_t stream) const;
  /// Throws Error where an output of the first set is not finite.
  void check_finite() const;

 private:
  struct Set {
    std::vector<gpu::DeviceMemory> memory;
    goldenrule_gpu_attention_args args{};
  };
  [[nodiscard]] Set make_set(int number) const;
  goldenrule_gpu_tensor random(Set& set, std::int64_t elements, int number) const;
  template <class T>
  goldenrule_gpu_tensor list(Set& set, const std::vector<T>& values) const;

  AttentionRow row_;
  gpu::DeviceMemory noise_;
  std::vector<Set> sets_;
};

}  // namespace goldenrule::bench
