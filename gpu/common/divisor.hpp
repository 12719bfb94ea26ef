// SPDX-License-Identifier: Apache-2.0
//
// Division of 0 <= n < 2^31 by a divisor that the host knows, as a multiplication: with
// s = ceil(log2 d) and m = floor(2^(31+s) / d) + 1 < 2^32, n / d = n * m >> (31 + s), because the
// excess n (m d - 2^(31+s)) <= n d < 2^(31+s). A hardware division would cost 50 ns of a decode
// step.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define GOLDENRULE_GPU_BOTH __host__ __device__
#else
#define GOLDENRULE_GPU_BOTH
#endif

namespace goldenrule::gpu {

struct Divisor {
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  /// d >= 1.
  static Divisor of(int32_t d) {
    uint32_t s = 0;
    while ((int64_t{1} << s) < d) ++s;
    const auto m = (uint64_t{1} << (31 + s)) / static_cast<uint64_t>(d) + 1;
    return {static_cast<uint32_t>(m), 31 + s};
  }
  GOLDENRULE_GPU_BOTH int32_t quotient(int32_t n) const {
    return static_cast<int32_t>(static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier >>
                                shift);
  }
};

}  // namespace goldenrule::gpu
