// SPDX-License-Identifier: Apache-2.0
//
// The table of `goldenrule_bench attention`: decode of one block of tokens per request over a paged
// cache whose pages lie in random order. Its floor is that every key and value is read once, at the
// streaming rate of this run: a request of n tokens has n H (K + V) 2 bytes, beside which q, o and
// the fresh block are little.
#pragma once

#include <cuda_runtime_api.h>

#include "tools/bench_gpu/options.hpp"

namespace goldenrule::bench {

void run_attention(const Options& options, cudaStream_t stream, int multiprocessors);

}  // namespace goldenrule::bench
