// SPDX-License-Identifier: Apache-2.0
//
// Shapes of the tuned attention kernel, and its shared memory.
//
// The queries of a request and the query heads of a key head have the same keys, so they are the
// rows of one tile, row = query * G + head of the group, and K and V are read once for all of them.
// A block has four warps and takes tiles of 64 keys. With 64 rows each warp has 16 of them and all
// keys; with 16 rows each warp has all rows and 16 keys of every tile.
#pragma once

#include "gpu/attention/requests.cuh"
#include "gpu/ptx/async_copy.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu::attention {

template <Element kType_, int kDim_, int kRows_>
struct Config {
  static constexpr Element kType = kType_;
  static constexpr int kDim = kDim_;    ///< of keys and of values, padded with zeros
  static constexpr int kRows = kRows_;  ///< rows of a tile
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kTile = 64;   ///< keys
  static constexpr int kStages = 3;  ///< tiles in shared memory
  static constexpr int kPlaces = kStages + 1;  ///< tiles whose rows are known
  static constexpr int kRowGroups = kRows / 16, kKeyGroups = kWarps / kRowGroups;
  static constexpr int kKeys = kTile / kKeyGroups;  ///< of a tile, for one warp
  static constexpr int kUnits = kDim / 8;           ///< 16 bytes each, of a row
  static constexpr int kPartialRow = kDim + 8;      ///< numbers: rows begin in other banks
  static_assert(kRows == 16 || kRows == 32 || kRows == 64, "whole warps of 16 rows");
};

/// Rows of kDim elements; unit u of row r stands at place u ^ r % 8, so that eight rows of a matrix
/// lie in different banks.
template <class C>
struct __align__(16) Tile {
  uint4 units[C::kTile * C::kUnits];

  __device__ static __forceinline__ int place(int row, int unit) {
    return row * C::kUnits + (unit ^ (row & 7));
  }
};

template <class C>
struct DecodeStorage {
  struct Stage {
    Tile<C> k, v;
  };
  /// Of every warp its rows, when all keys of the block are done: weights are e to the power of
  /// (score - largest) and not divided by their sum.
  struct Partials {
    float o[C::kWarps * 16 * C::kPartialRow];
  };
  union {  // the partial results are written when the last tile has been read
    Stage stages[C::kStages];
    Partials partials;
  };
  float2 sums[C::kWarps * 16];                // of the rows of partials: largest score, sum
  float2 merged[C::kWarps * 16];              // those that this block merges
  KeyRow rows[C::kPlaces][C::kTile];          // where the keys of a tile are
  uint32_t exists[C::kPlaces][C::kTile / 32];  // which of them there are
};

/// What the 16-bit types differ in.
template <Element kType>
struct Half {
  __device__ static __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                      uint2 b) {
    if constexpr (kType == Element::kBF16) {
      ptx::multiply_add(c, a, b);
    } else {
      ptx::multiply_add_f16(c, a, b);
    }
  }
  /// Rounded to nearest even.
  __device__ static __forceinline__ uint32_t pack(float low, float high) {
    if constexpr (kType == Element::kBF16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
};

}  // namespace goldenrule::gpu::attention
