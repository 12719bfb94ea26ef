// SPDX-License-Identifier: Apache-2.0
//
// A kernel as an engine has in front of ours: a convolution or a split of a few microseconds, on
// every multiprocessor, that lets the next kernel begin at once, at its end, or never.
#pragma once

#include <cuda_runtime_api.h>

namespace goldenrule::bench {

enum class Trigger { kAtOnce, kLate, kNever };

/// One block for each multiprocessor, busy for `cycles`. Launched without the attribute, so that it
/// begins when everything in front of it is complete.
void launch_neighbour(Trigger trigger, int multiprocessors, long long cycles, cudaStream_t stream);

}  // namespace goldenrule::bench
