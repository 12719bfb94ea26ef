// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on what the host cannot check: bounds of sequences and positions of checkpoints, of
// any value. No result lies outside the range that it is asked for, and nothing overflows.
#pragma once

#include <cstdint>

#include "gpu/common/divisor.hpp"

namespace goldenrule::gpu::prefill {

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

/// Tokens of a sequence up to the i-th multiple of `every` that lies above `position`, where its
/// first token is, or not below it where `before`. i < 2^31 and 1 <= every < 2^31.
GOLDENRULE_GPU_BOTH inline int64_t tokens_to_multiple(int64_t position, int64_t every, bool before,
                                                      int64_t i) {
  int64_t rest = position % every;
  if (rest < 0) rest += every;
  const int64_t first = before && rest == 0 ? 0 : every - rest;
  return first + i * every;
}

}  // namespace goldenrule::gpu::prefill
