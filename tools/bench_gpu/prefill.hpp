// SPDX-License-Identifier: Apache-2.0
//
// The table of `goldenrule_bench prefill`: packed prefill calls of production shape beside two
// floors. Every byte of q, k, v, gates, o and states moves at least once, at the streaming rate of
// this run; and the chunked form does a number of operations on the tensor cores that follows from
// the chunk (64 tokens for GDN, 32 for KDA), at a rate that is given, not measured.
#pragma once

#include <cuda_runtime_api.h>

#include "tools/bench_gpu/options.hpp"

namespace goldenrule::bench {

void run_prefill(const Options& options, cudaStream_t stream, int multiprocessors);

}  // namespace goldenrule::bench
