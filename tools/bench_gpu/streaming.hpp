// SPDX-License-Identifier: Apache-2.0
//
// What the memory and the fp32 units of this device can do, as the plainest kernels do it: the
// measure for everything else in the same run. Also the random fill: timing zeros flatters a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace goldenrule::bench {

enum class Stream { kInPlace, kRead, kWrite, kCopy };

/// In place: every 16 bytes read, changed and written back. Read, write: only that. Copy: the first
/// half to the second. `bytes` is a multiple of 64 KiB.
void launch_stream(Stream kind, void* data, std::size_t bytes, int blocks_per_64k,
                   cudaStream_t stream);

/// What the fp32 units can do: kFmaPerThread dependent-free fused multiply-adds in each thread.
inline constexpr int kFmaPerThread = 1 << 16;
void launch_fma(void* out, int blocks, cudaStream_t stream);
inline constexpr int kFmaThreads = 256;

enum class Fill { kF32, kBF16 };

/// Uniform in [-amplitude, amplitude], a function of seed and position only.
void launch_fill(Fill kind, void* data, std::size_t count, float amplitude, unsigned seed,
                 cudaStream_t stream);

}  // namespace goldenrule::bench
