// SPDX-License-Identifier: Apache-2.0
//
// What the device can do, measured in the run that compares kernels with it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace goldenrule::bench {

struct Ceilings {
  double in_place = 0, read = 0, write = 0;  ///< TB/s, bytes read plus written
  double fma = 0;                            ///< fp32 TFLOP/s

  /// The least time for these bytes: what is both read and written at the rate of updating in
  /// place, the rest at that of reading or writing.
  [[nodiscard]] double bytes_us(std::int64_t bytes_read, std::int64_t bytes_written) const {
    const std::int64_t both = std::min(bytes_read, bytes_written);
    const std::int64_t rest = bytes_read + bytes_written - 2 * both;
    return (2.0 * static_cast<double>(both) / in_place +
            static_cast<double>(rest) / (bytes_read > bytes_written ? read : write)) *
           1e-6;
  }
};

[[nodiscard]] Ceilings print_ceilings(cudaStream_t stream, int replays, int multiprocessors);

[[nodiscard]] inline double terabytes(std::int64_t bytes, double us) {
  return static_cast<double>(bytes) / us * 1e-6;
}

}  // namespace goldenrule::bench
