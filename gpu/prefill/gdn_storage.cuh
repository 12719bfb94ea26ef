// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of GDN prefill pass each other, and their shared memory. prefill_gdn_gates and
// prefill_gdn_prepare make a record of each chunk and value head, which the state does not enter;
// prefill_gdn_scan carries the state over the chunks. A record is stored as the tensor cores of the
// scan read it, so it is copied as one block of bytes.
//
// Kernels of their own and not roles of one: together their code does not fit the instruction cache
// of a multiprocessor (32 KB). In one block they took 647 us for 8192 tokens of 32 heads, with 59 %
// hits in that cache, and 330 us apart (H200).
#pragma once

#include "gpu/prefill/params.hpp"
#include "gpu/prefill/tile.cuh"

namespace goldenrule::gpu::prefill {

/// Factors of the rows and columns of a chunk, fp32. Tokens behind the end have k, q, beta = 0.
struct alignas(16) Factors {
  float key_decay[kChunk];    ///< e^G_i / |k_i|: of S_0^T k_i
  float query_decay[kChunk];  ///< scale e^G_i / |q_i|: of S_0^T q_i
  float update[kChunk];       ///< beta_i e^(G_C - G_i) / |k_i|: of Z_i in the update of the state
  float decay;                ///< e^G_C
};

/// T' and P of gdn_prepare.cuh as tiles.
struct alignas(1024) PreparedChunk {
  char t[kTileBytes], p[kTileBytes];
  Factors factors;

  [[nodiscard]] __device__ __forceinline__ const char* t_tile() const { return t; }
  [[nodiscard]] __device__ __forceinline__ const char* p_tile() const { return p; }
};
inline constexpr int kPreparedBytes = 2 * kTileBytes + static_cast<int>(sizeof(Factors));

/// Gates and beta of a chunk, see chunk_gates.cuh.
struct alignas(16) ChunkInputs {
  float2 gate[kChunk];  ///< G in two terms, base 2
  float sign[kChunk];   ///< of the product of the decays
  float beta[kChunk];
};

/// A record in the workspace: what is prepared, and behind it what prefill_gdn_gates leaves for
/// that.
inline constexpr int kRecordInputs = (kPreparedBytes + 127) / 128 * 128;
inline constexpr int kRecordBytes = (kRecordInputs + int{sizeof(ChunkInputs)} + 127) / 128 * 128;

template <int kBytes = kRecordBytes>
__device__ __forceinline__ char* record_of(const Params& p, int record, int hv) {
  return static_cast<char*>(p.workspace) + (static_cast<int64_t>(record) * p.HV + hv) * kBytes;
}

/// Entries of the columns before block w (w = 1, 2, 3) begin at 8 w (w - 1).
inline constexpr int kColumnsBefore = 16 + 32 + 48;

/// Shared memory of prefill_gdn_prepare: four blocks share a multiprocessor.
struct alignas(1024) PreparationStorage {
  union {
    char k[2 * kTileBytes];
    char t[kTileBytes];  ///< when all products with k are done
  };
  union {
    char q[2 * kTileBytes];
    struct {
      char high[kTileBytes], low[kTileBytes];  ///< A, then T block by block, as two bf16 terms
    } terms;                                   ///< when all warps hold their rows of q
  };
  char p[kTileBytes];
  float diagonal[4][16][16];  ///< blocks of A on the diagonal, fp32
  Factors factors;
  ChunkInputs inputs;
  uint64_t loaded;                     ///< barrier: k and q are there
  float norm[2 * kChunk];              ///< factors of k, then of q
  float column[kChunk];                ///< norm of k times beta
  float p_row[kChunk], t_row[kChunk];  ///< e^(G_i - G_a), a the end of the block before i's
  float t_column[kColumnsBefore];      ///< e^(G_a - G_j) of the columns j before each block,
  float p_column[kColumnsBefore];      ///< and the same times column[j]
};

/// How a block of prefill_gdn_scan is made up: kScans warpgroups scan 64 values each.
template <int kScanGroups, bool kWithCheckpoints>
struct ScanConfig {
  static constexpr bool kCheckpoints = kWithCheckpoints;
  static constexpr bool kChannelGates = false;
  static constexpr int kTokens = kChunk;
  using Prepared = PreparedChunk;
  static constexpr int kPreparedSize = kPreparedBytes;
  static constexpr int kRecordSize = kRecordBytes;
  static constexpr int kScans = kScanGroups;
  static constexpr int kStages = 3;
  static constexpr int kBlockValues = kScans * kTileColumns;
  static constexpr int kGroup = 128;  ///< threads of a warpgroup
  static constexpr int kThreads = (1 + kScans) * kGroup;
  static constexpr int kServiceRegisters = 24;
  static constexpr int kScanRegisters = 240;
};

/// Where a tile of o goes.
struct alignas(16) OutputPlace {
  int first, hv, first_value;  ///< packed token, head, value
  int count;                   ///< tokens, or kNoMoreChunks
};
inline constexpr int kNoMoreChunks = -1;

/// What a scan with one gate per head needs beside a record, and what one with a gate per channel,
/// whose records hold all of k and q that it reads.
template <class C>
struct KeyStages {
  alignas(1024) char k[C::kStages][2 * kTileBytes];
  char q[C::kStages][2 * kTileBytes];
};
template <class C>
requires C::kChannelGates struct KeyStages<C> {
  alignas(1024) float no_decay[kHeadKeys];  ///< ones
};

/// Who passes what to whom: copier --(stage)--> scans --(o)--> writer.
template <class C>
struct ScanStorage : KeyStages<C> {
  alignas(1024) char v[C::kStages][C::kScans * kBytesOfTile<C::kTokens>];
  typename C::Prepared prepared[C::kStages];
  char o[C::kScans][kBytesOfTile<C::kTokens>];
  OutputPlace outputs[C::kScans];
  uint64_t stage_full[C::kStages], stage_free[C::kStages];
  uint64_t output_full[C::kScans], output_free[C::kScans];
};

}  // namespace goldenrule::gpu::prefill
