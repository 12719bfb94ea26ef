// SPDX-License-Identifier: Apache-2.0
//
// Tiles of bf16 in shared memory as the tensor cores read them. A tile has rows of 64 elements, 128
// bytes, eight pieces of 16 bytes; piece c of row r lies at place c ^ (r % 8) of its row (the
// 128-byte swizzle of sm_90). So eight rows of one column of pieces touch every bank once, whether
// they are read as rows (inner dimension contiguous) or as columns (transposed by the hardware).
// A matrix of 128 columns is two tiles, one behind the other. Tiles begin at multiples of 1024
// bytes, which is the period of the pattern.
#pragma once

#include <cstdint>

#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kChunk = 64;        ///< tokens of a chunk: rows of a tile
inline constexpr int kTileColumns = 64;  ///< elements of a row
inline constexpr int kTileRowBytes = 128;
template <int kRows>
inline constexpr int kBytesOfTile = kRows* kTileRowBytes;
inline constexpr int kTileBytes = kBytesOfTile<kChunk>;
inline constexpr int kHeadKeys = 128;  ///< K of the tuned kernels

/// Byte of piece `piece` (0..7) of row `row` in a tile.
__device__ __forceinline__ uint32_t piece_offset(int row, int piece) {
  return static_cast<uint32_t>(row * kTileRowBytes + ((piece ^ (row & 7)) << 4));
}

/// Byte of element `column` (even) of row `row`.
__device__ __forceinline__ uint32_t pair_offset(int row, int column) {
  return piece_offset(row, column >> 3) + static_cast<uint32_t>((column & 7) * 2);
}

/// Descriptors of operands in tiles, for wgmma: address, distances and swizzle in units of 16
/// bytes. Groups of eight rows lie 1024 bytes apart.
///
/// Rows of the operand are rows of the tile, the inner dimension runs along them.
__device__ __forceinline__ uint64_t rows_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroup = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kGroup | (uint64_t{1} << 16) | ((address & 0x3ffff) >> 4);
}
/// The inner dimension runs over rows of the tile; columns beyond 64 lie in the next tile of as
/// many rows.
template <int kRows = kChunk>
__device__ __forceinline__ uint64_t columns_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroup = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kTile = kBytesOfTile<kRows>;
  constexpr uint64_t kNextTile = kTile >> 4 << 16;
  return kSwizzle128 | kGroup | kNextTile | ((address & 0x3ffff) >> 4);
}
/// The same operand `bytes` further on.
__device__ __forceinline__ uint64_t advanced(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}
/// Bytes from the start of a matrix of 128 columns to step `s` of 16 columns.
__device__ __forceinline__ constexpr int column_step(int s) {
  return (s / 4) * kTileBytes + (s % 4) * 32;
}
/// Bytes to step `s` of 16 rows.
__device__ __forceinline__ constexpr int row_step(int s) { return s * 16 * kTileRowBytes; }

}  // namespace goldenrule::gpu::prefill
