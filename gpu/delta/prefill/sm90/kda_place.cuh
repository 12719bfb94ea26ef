// SPDX-License-Identifier: Apache-2.0
//
// Who has what of a chunk of KDA: four warps, warp 2 h + s with tokens 16 h to 16 h + 15 and
// channels 64 s to 64 s + 63, two channels a lane. Where products are taken warp 2 r + n has the
// rows of k (r = 0) or q, and columns 8 n to 8 n + 7 of 16.
#pragma once

#include "gpu/delta/prefill/sm90/kda_storage.cuh"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/ptx/barrier.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu::prefill {

struct KdaPlace {
  int half;     ///< tokens 16 half to 16 half + 15
  int side;     ///< channels 64 side to 64 side + 63
  int lane;     ///< channels 2 lane and 2 lane + 1 of these
  int barrier;  ///< of the block, for the threads of this group alone

  __device__ __forceinline__ void synchronize() const {
    ptx::synchronize_threads<kKdaGroupThreads>(barrier);
  }
  [[nodiscard]] __device__ __forceinline__ int pair() const { return 32 * side + lane; }
  [[nodiscard]] __device__ __forceinline__ int channel() const { return 2 * pair(); }
  [[nodiscard]] __device__ __forceinline__ int g() const { return lane / 4; }
  [[nodiscard]] __device__ __forceinline__ int t() const { return lane % 4; }
  /// Where this lane's channels of row `row` lie in a tile of 64.
  [[nodiscard]] __device__ __forceinline__ uint32_t in_row(int row) const {
    return piece_offset(row, lane / 4) + static_cast<uint32_t>(lane % 4 * 4);
  }
};

__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
  return make_float2(a.x * b.x, a.y * b.y);
}
__device__ __forceinline__ float2 operator*(float2 a, float b) {
  return make_float2(a.x * b, a.y * b);
}
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  return make_float2(bf16_low(pair), bf16_high(pair));
}
__device__ __forceinline__ uint32_t packed(float2 x) { return bf16_pair(x.x, x.y); }

__device__ __forceinline__ uint32_t& word(char* at) { return *reinterpret_cast<uint32_t*>(at); }

/// k, later k_in, of 64 channels: a tile of 32 tokens.
__device__ __forceinline__ char* key_tile(KdaChunk& chunk, int side) {
  return chunk.keys_queries + side * kTileBytes;
}
__device__ __forceinline__ char* query_tile(KdaChunk& chunk, int side) {
  return key_tile(chunk, side) + kKdaTileBytes;
}

/// T' of row i at column i, P of it at column 32 + i.
__device__ __forceinline__ void store_correction(KdaChunk& chunk, int i, int column, float x) {
  char* at = chunk.corrections + piece_offset(i, column / 8) + column % 8 * 2;
  *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void store_corrections(KdaChunk& chunk, int i, int column, float2 x) {
  word(chunk.corrections + pair_offset(i, column)) = packed(x);
}

/// Tiles of 64 channels whose rows are the left or right operands of products over 128 channels.
struct RowTiles {
  uint32_t address;
  int distance;  ///< bytes from the tile of the first 64 channels to that of the others

  /// Rows `row` to row + 15 as left operand of step s.
  __device__ __forceinline__ void load_left(uint32_t (&a)[4], int row, int s, int lane) const {
    ptx::load_matrices(a, tile(s) + piece_offset(row + lane % 16, 2 * (s % 4) + lane / 16));
  }
  /// Rows `row` to row + 7 as columns of the right operands of steps s and s + 1.
  __device__ __forceinline__ void load_right(uint32_t (&b)[4], int row, int s, int lane) const {
    ptx::load_matrices(b, tile(s) + piece_offset(row + lane % 8, 2 * (s % 4) + lane / 8));
  }

 private:
  [[nodiscard]] __device__ __forceinline__ uint32_t tile(int s) const {
    return address + static_cast<uint32_t>(s / 4 * distance);
  }
};

}  // namespace goldenrule::gpu::prefill
