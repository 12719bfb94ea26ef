// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "tools/bench_gpu/options.hpp"

namespace goldenrule::bench {

/// What dependent launch gains behind a kernel that is not ours, and what an MTP call costs
/// together with the commit that follows it.
void run_neighbours(const Options& options, cudaStream_t stream, const cudaDeviceProp& device);

}  // namespace goldenrule::bench
