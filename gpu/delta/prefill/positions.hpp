// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on positions of checkpoints, which the host cannot check: of any value, and nothing
// overflows.
#pragma once

#include <cstdint>

#include "gpu/common/spans.hpp"

namespace goldenrule::gpu::prefill {

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
