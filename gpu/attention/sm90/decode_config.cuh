// SPDX-License-Identifier: Apache-2.0
//
// Shapes of the tuned attention kernel, and its shared memory.
//
// The queries of a request and the query heads of a key head have the same keys, so they are the
// rows of one tile, row = query * G + head of the group, and K and V are read once for all of them.
// A block takes tiles of 64 keys: four of its warps copy them (tile_supply.cuh), a team of four
// computes. With 64 rows a team is a warpgroup, of which each warp has 16 rows and all keys; with
// 16 rows each warp has all rows and 16 keys of every tile. Two such blocks share a multiprocessor.
//
// What bounds a call of few clusters is the time of one tile after the other in a block. There a
// block has a multiprocessor to itself: twice the tiles in shared memory, and two teams that take
// them in turns and add up what they have before the cluster does. Such clusters have 9 blocks: the
// processing clusters of an H200 have 16 or 18 multiprocessors and one has 9, so that 9 of 9 blocks
// run at a time, and 7 of more.
#pragma once

#include "gpu/attention/requests.cuh"
#include "gpu/ptx/barrier.cuh"
#include "gpu/ptx/matrix.cuh"
#include "gpu/ptx/warpgroup.cuh"

namespace goldenrule::gpu::attention {

template <Element kType_, int kDim_, int kRows_, int kTeams_>
struct Config {
  static constexpr Element kType = kType_;
  static constexpr int kDim = kDim_;    ///< of keys and of values, padded with zeros
  static constexpr int kRows = kRows_;  ///< rows of a tile
  static constexpr int kTeams = kTeams_, kBlocks = 2 / kTeams;  ///< of a multiprocessor
  static constexpr int kWarpsOfTeam = 4, kWarps = kWarpsOfTeam * kTeams;
  static constexpr int kConsumers = 32 * kWarps;  ///< threads that compute, the first ones
  static constexpr int kProducers = 128, kThreads = kConsumers + kProducers;
  /// Of a thread: the blocks of a multiprocessor share 65,536, at launch 128 or 168 for each
  /// thread.
  static constexpr int kConsumerRegisters = 200, kProducerRegisters = 56;
  static constexpr int kTile = 64;                         ///< keys
  static constexpr int kStages = 3 * kTeams * 128 / kDim;  ///< tiles in shared memory
  static constexpr bool kWarpgroup = kRows == 64;          ///< products are those of a warpgroup
  static constexpr int kRowGroups = kRows / 16, kKeyGroups = kWarpsOfTeam / kRowGroups;
  static constexpr int kKeys = kTile / kKeyGroups;  ///< of a tile, for one warp
  static constexpr int kUnits = kDim / 8;           ///< 16 bytes each, of a row
  static constexpr int kPartialRow = kDim + 8;      ///< numbers: rows begin in other banks
  static_assert(kRows == 16 || kRows == 64, "one row group, or a warpgroup");
  static_assert(kTeams == 1 || (kTeams == 2 && kWarpgroup));
  static_assert(kDim == 64 || kDim == 128, "whole panels of 64 elements");
};

/// Rows of kDim elements in panels of 64, 128 bytes a row: unit u % 8 of row r stands at place
/// u % 8 ^ r % 8 of its row in panel u / 8. So eight rows of a matrix lie in different banks, and a
/// warpgroup reads the tile by descriptor: the 128-byte swizzle of sm_90, whose period is 1024
/// bytes.
template <class C>
struct __align__(1024) Tile {
  static constexpr int kPanelBytes = C::kTile * 128;
  uint4 units[C::kTile * C::kUnits];

  __device__ static __forceinline__ int place(int row, int unit) {
    return unit / 8 * (kPanelBytes / 16) + row * 8 + (unit % 8 ^ (row & 7));
  }
  /// `rows` rows below `place`, where the number of its row has none of the lowest bits of `rows`.
  __device__ static __forceinline__ int below(int place, int rows) {
    return (place ^ (rows & 7)) + 8 * rows;
  }
  /// For keys as columns of the result, or the inner dimension: groups of eight rows lie 1024 bytes
  /// apart, columns beyond 64 a panel.
  [[nodiscard]] __device__ __forceinline__ uint64_t descriptor() const {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kGroup = uint64_t{1024 >> 4} << 32;
    constexpr uint64_t kNextPanel = uint64_t{kPanelBytes >> 4} << 16;
    return kSwizzle128 | kGroup | kNextPanel | ((ptx::shared_address(units) & 0x3ffff) >> 4);
  }
  /// What is added to it for step `i` of 16 elements along the rows, or of 16 rows.
  __device__ static __forceinline__ constexpr uint64_t along_rows(int i) {
    return static_cast<uint64_t>(i / 4 * kPanelBytes + i % 4 * 32) >> 4;
  }
  __device__ static __forceinline__ constexpr uint64_t over_rows(int i) {
    return static_cast<uint64_t>(i * 16 * 128) >> 4;
  }
};

/// A row that a block merges. `to`: its output; null: it is none of the request.
struct MergedRow {
  char* to;
  uint32_t empty;  // it sees no key
};

template <class C>
struct DecodeStorage {
  struct Stage {
    Tile<C> k, v;
  };
  /// Of every warp its rows, when all keys of the block are done: weights are e to the power of
  /// (score - largest) and not divided by their sum.
  struct Partials {
    float o[C::kWarpsOfTeam * 16 * C::kPartialRow];
    float of_team[C::kDim / 2 + 4][C::kTeams == 1 ? 1 : 128];  // of each thread of the second team
  };
  union {  // the partial results are written when the last tile has been read
    Stage stages[C::kStages];
    Partials partials;
  };
  float2 sums[C::kWarpsOfTeam * 16];  // of the rows of partials: largest score, sum
  // Those that this block merges, then their weights. Rows of nine blocks are 8 for each but one.
  float2 merged[C::kTeams == 1 ? C::kWarpsOfTeam * 16 : 8 * kSplitsAlone];
  MergedRow rows[C::kRows];
  uint32_t exist[C::kStages][C::kTile / 32];  // which keys of a tile somebody sees
  // A tile is full when what all threads that copy have begun has landed and it is written which
  // keys exist, free when all threads of the team that takes it have read it: each by itself, as
  // racecheck follows threads.
  uint64_t full[C::kStages], free[C::kStages];
};

/// By one thread, before the others come to a barrier of the block.
template <class C>
__device__ __forceinline__ void initialize_ring(DecodeStorage<C>& s) {
  for (int i = 0; i < C::kStages; ++i) {
    ptx::initialize_barrier(s.full[i], C::kProducers + 2);
    ptx::initialize_barrier(s.free[i], C::kConsumers / C::kTeams);
  }
}

/// What the 16-bit types differ in.
template <Element kType>
struct Half {
  static constexpr bool kBF16 = kType == Element::kBF16;

  /// Of a warpgroup: C (+)= A B, a row of B for each of 64 columns.
  template <bool kAdd>
  __device__ static __forceinline__ void multiply_rows(float (&c)[32], const uint32_t* a,
                                                       uint64_t b) {
    if constexpr (kBF16) {
      ptx::multiply_64_rows<kAdd>(c, a, b);
    } else {
      ptx::multiply_64_rows_f16<kAdd>(c, a, b);
    }
  }
  /// C += A B, 64 or 128 columns of B.
  __device__ static __forceinline__ void multiply_columns(float (&c)[32], const uint32_t* a,
                                                          uint64_t b) {
    if constexpr (kBF16) {
      ptx::multiply_64_columns<true>(c, a, b);
    } else {
      ptx::multiply_64_columns_f16<true>(c, a, b);
    }
  }
  __device__ static __forceinline__ void multiply_columns(float (&c)[64], const uint32_t* a,
                                                          uint64_t b) {
    if constexpr (kBF16) {
      ptx::multiply_128_columns<true>(c, a, b);
    } else {
      ptx::multiply_128_columns_f16<true>(c, a, b);
    }
  }
  __device__ static __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                      uint2 b) {
    if constexpr (kBF16) {
      ptx::multiply_add(c, a, b);
    } else {
      ptx::multiply_add_f16(c, a, b);
    }
  }
  /// Rounded to nearest even.
  __device__ static __forceinline__ uint32_t pack(float low, float high) {
    if constexpr (kBF16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
};

}  // namespace goldenrule::gpu::attention
