// SPDX-License-Identifier: Apache-2.0
//
// Bounds of a packed axis that the host cannot check, of any value. No result lies outside the
// axis, and nothing overflows.
#pragma once

#include <cstdint>

#include "gpu/common/divisor.hpp"

namespace goldenrule::gpu {

/// Elements first to first + count - 1 of a packed axis.
struct Span {
  int32_t first, count;
};

GOLDENRULE_GPU_BOTH inline int64_t clamped(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// What two bounds name of an axis of this size; empty where the end lies before the beginning.
GOLDENRULE_GPU_BOTH inline Span span_between(int64_t begin, int64_t end, int32_t size) {
  const int64_t first = clamped(begin, 0, size);
  return {static_cast<int32_t>(first), static_cast<int32_t>(clamped(end, first, size) - first)};
}

}  // namespace goldenrule::gpu
