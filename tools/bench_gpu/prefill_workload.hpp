// SPDX-License-Identifier: Apache-2.0
//
// One row of the prefill table, with as many disjoint sets of inputs as make 512 MiB, so that
// nothing rests in the L2 between two launches. Norm, gate, sigmoid and scale are in the call, the
// states are fp32, read from and written to a pool of one slot per sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/goldenrule_gpu.h"
#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::bench {

/// What the gates of KDA are like: decay as log alpha per token and channel. A kernel whose time
/// follows its data shows here.
enum class Gates {
  kFast,      ///< spread over (-5, 0)
  kReal,      ///< the same, but for a third of the channels within .02 of 0
  kNone,      ///< 0, by the same code
  kSoftplus,  ///< without a bound, as those of GDN are made: down to -6 (fastest head)
  kSteep,     ///< the same below -10: no chunk of KDA has products by anchors
};

struct PrefillRow {
  bool kda = false;
  std::int64_t H = 16, HV = 32;
  std::string lengths;  ///< of the name: "8192", "8x1024"
  std::vector<std::int64_t> lens;
  Gates gates = Gates::kFast;
  bool precise = false;  ///< GOLDENRULE_GPU_FLAG_PRECISE
  double peer_us = 0;    ///< the best in the table of measured peers; 0: none
  double goal_us = 0;    ///< 0: none

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::int64_t tokens() const;
  /// The fewest bytes that must move.
  [[nodiscard]] std::int64_t bytes_read() const;
  [[nodiscard]] std::int64_t bytes_written() const;
  /// On the tensor cores: three products with the state and four within a chunk.
  [[nodiscard]] std::int64_t operations() const;

 private:
  [[nodiscard]] std::int64_t state_bytes() const;
};

class PrefillWorkload {
 public:
  PrefillWorkload(const PrefillRow& row, cudaStream_t stream);

  [[nodiscard]] int sets() const { return static_cast<int>(calls_.size()); }
  /// Launches set i; throws Error on a refusal.
  void launch(int i, cudaStream_t stream) const;
  /// Throws Error where an element of o of set 0 is not finite: a time over NaNs says nothing.
  void check_finite() const;

 private:
  void* buffer(std::int64_t bytes);
  goldenrule_gpu_tensor random(std::int64_t count, float amplitude, cudaStream_t stream);
  goldenrule_gpu_tensor floats(const std::vector<float>& values);
  [[nodiscard]] goldenrule_gpu_prefill_args shared(const PrefillRow& row);

  std::vector<gpu::DeviceMemory> memory_;
  std::vector<goldenrule_gpu_prefill_args> calls_;
  unsigned seed_ = 1;
};

}  // namespace goldenrule::bench
