// SPDX-License-Identifier: Apache-2.0
//
// Rows of a token tensor as tiles in shared memory, by asynchronous copies of 16 bytes.
#pragma once

#include "gpu/delta/prefill/tile.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::prefill {

/// kThreads threads copy `count` rows of kTiles times 128 bytes to kTiles tiles of kRows rows, one
/// behind the other; `from` is the first row, `stride` the distance of rows in bytes. Rows from
/// `count` on are written as zeros.
template <int kTiles, int kThreads, int kRows = kChunk>
__device__ __forceinline__ void copy_tiles(char* to, const char* from, uint32_t stride, int count) {
  constexpr int kPieces = kTiles * 8;
  constexpr int kRowsAtOnce = kThreads / kPieces;
  const int thread = ptx::hidden(static_cast<int>(threadIdx.x)) % kThreads;
  const int piece = thread % kPieces;
  const int first_row = thread / kPieces;
  char* tile = to + (piece / 8) * kBytesOfTile<kRows>;
  from += piece * 16;
  const char* source = from + static_cast<uint64_t>(stride) * static_cast<uint32_t>(first_row);
  const uint64_t step = static_cast<uint64_t>(stride) * kRowsAtOnce;
#pragma unroll 4
  for (int row = first_row; row < kRows; row += kRowsAtOnce) {
    const bool inside = row < count;
    ptx::copy_async_16(tile + piece_offset(row, piece % 8), inside ? source : from,
                       inside ? 16u : 0u);
    source += step;
  }
}

}  // namespace goldenrule::gpu::prefill
