// SPDX-License-Identifier: Apache-2.0
//
// A pair of lower triangles of 64 x 64 bf16, T' and P of a chunk, in four panels of 16 columns.
// Panel s has columns 16 s to 16 s + 15 of the rows from 16 s on, so what lies above the blocks on
// the diagonal has no place: 10,240 bytes in place of 16,384 are written and read. Eight rows of T'
// and the same of P follow each other, 256 bytes each; a row is two pieces of 16 bytes, and piece c
// of row r lies at place c ^ (r / 4 % 2) of its row (the 32-byte swizzle of sm_90), so that eight
// rows of one column of pieces touch every bank once.
//
// The tensor cores multiply all 64 columns of a result at once: ptxas gives up following registers
// where a product writes a part of those of another (C7511). So where they read the panels each is
// one of 64 rows, the first 16 s of which are zeros that no copy touches.
#pragma once

#include "gpu/delta/prefill/tile.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kPanels = 4;
inline constexpr int kPanelGroup = 512;                ///< bytes of eight rows of T' and P
inline constexpr int kPanelBytes = 8 * kPanelGroup;    ///< of 64 rows
inline constexpr int kPanelStep = 2 * kPanelGroup;     ///< of 16 rows
inline constexpr int kOfSecond = kPanelGroup / 2;      ///< bytes from T' to P
inline constexpr int kPackedPanels = 10 * kPanelStep;  ///< rows from 16 s on
inline constexpr int kSpreadPanels = 4 * kPanelBytes;  ///< all rows

/// Where row 16 s of panel `s` is, packed and spread.
__device__ __forceinline__ constexpr int packed_panel(int s) {
  return s * kPanelBytes - s * (s - 1) / 2 * kPanelStep;
}
__device__ __forceinline__ constexpr int spread_panel(int s) {
  return s * (kPanelBytes + kPanelStep);
}
__device__ __forceinline__ constexpr int panel_bytes(int s) { return kPanelBytes - s * kPanelStep; }

/// Byte of the block of 16 x 16 that begins at (row, column), packed.
__device__ __forceinline__ uint32_t packed_block(int row, int column) {
  return static_cast<uint32_t>(packed_panel(column / 16) + (row - column) / 16 * kPanelStep);
}
/// Byte of piece `half` of row `row` of such a block.
__device__ __forceinline__ uint32_t piece_of_block(int row, int half) {
  return static_cast<uint32_t>(row / 8 * kPanelGroup + row % 8 * 32 + (half ^ (row >> 2 & 1)) * 16);
}

/// All rows of panel `s` as operand, for wgmma: the inner dimension runs along them.
__device__ __forceinline__ uint64_t panel_descriptor(uint32_t spread, int s) {
  constexpr uint64_t kSwizzle32 = uint64_t{3} << 62;
  constexpr uint64_t kGroup = uint64_t{kPanelGroup >> 4} << 32;
  const uint32_t at = spread + static_cast<uint32_t>(s * kPanelBytes);
  return kSwizzle32 | kGroup | (uint64_t{1} << 16) | ((at & 0x3ffff) >> 4);
}

}  // namespace goldenrule::gpu::prefill
