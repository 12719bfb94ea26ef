// SPDX-License-Identifier: Apache-2.0
//
// Whether two tensors of a call share memory, by their addresses, extents and strides alone. A
// block of a kernel reads while another writes, so what is written may be shared with nothing
// (goldenrule_gpu.h says where it may).
//
// Byte ranges that are apart share nothing. Ranges that meet may still hold views that are apart:
// q, k, v and o of one fused row [tokens, all heads of all four]. Where both step by the same
// number of bytes, or one of them not at all, and no row is longer than a step, they meet only
// where two rows do that lie less than a step apart, and so on inwards. That decides it for tensors
// of nested axes that step alike; whatever it does not decide counts as shared.
#pragma once

#include <array>
#include <cstdint>

#include "gpu/launch/check_tensor.hpp"

namespace goldenrule::gpu {

/// The bytes of a tensor: `run` bytes at every sum of steps along its axes.
struct Region {
  struct Axis {
    std::int64_t count, stride;  ///< count > 1, stride in bytes
    int number = 0;              ///< among the axes of the tensor
  };
  std::uintptr_t first = 0;
  std::int64_t run = 0;        ///< 0: no memory at all
  std::array<Axis, 4> axes{};  ///< from the longest step to the shortest
  int size = 0;                ///< axes that are used
};

/// Its bytes from the first to the last; none are in no range.
struct Range {
  std::uintptr_t first, size;
};
[[nodiscard]] Range range_of(const Region& region);

[[nodiscard]] inline bool are_apart(const Range& a, const Range& b) {
  if (a.size == 0 || b.size == 0) return true;
  return a.first <= b.first ? b.first - a.first >= a.size : a.first - b.first >= b.size;
}

/// The memory of a tensor that check_tensor has passed with these strides.
[[nodiscard]] Region region_of(const goldenrule_gpu_tensor& tensor, const TensorRule& rule,
                               const Strides& strides);

/// A row of `bytes` bytes.
[[nodiscard]] Region region_of(const void* data, std::uint64_t bytes);

[[nodiscard]] bool share_memory(const Region& a, const Region& b);

}  // namespace goldenrule::gpu
