// SPDX-License-Identifier: Apache-2.0
//
// A kernel that stands in front of the library's: it lets the next kernel begin at once, waits for
// a while, and only then writes what that kernel reads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace goldenrule::test {

/// Bytes that the producer copies, in device memory.
struct Delivery {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// Launches it over deliveries that lie in device memory; `dependent`: itself by programmatic
/// dependent launch.
void launch_producer(const Delivery* deliveries, int count, cudaStream_t stream,
                     bool dependent = false);

}  // namespace goldenrule::test
