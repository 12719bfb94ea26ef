// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of GDN prefill pass each other, and their shared memory. prefill_gdn_gates
// leaves the gates of each chunk in its record, prefill_gdn_prepare makes what the state does not
// enter, and prefill_gdn_scan carries the state over the chunks. A record is stored as the tensor
// cores of the scan read it, so it is copied as one block of bytes.
//
// Kernels of their own and not roles of one: together their code does not fit the instruction cache
// of a multiprocessor (32 KB). In one block they took 647 us for 8192 tokens of 32 heads, with 59 %
// hits in that cache, and 330 us apart (H200).
#pragma once

#include "gpu/delta/prefill/params.hpp"
#include "gpu/delta/prefill/sm90/lower_tiles.cuh"

namespace goldenrule::gpu::prefill {

/// Factors of the rows and columns of a chunk, fp32. Tokens behind the end have k, q, beta = 0.
struct alignas(16) Factors {
  float key_decay[kChunk];    ///< e^G_i / |k_i|: of S_0^T k_i
  float query_decay[kChunk];  ///< scale e^G_i / |q_i|: of S_0^T q_i
  float update[kChunk];       ///< beta_i e^(G_C - G_i) / |k_i|: of Z_i in the update of the state
  float decay;                ///< e^G_C
};

/// T' and P of gdn_chunk.cuh, and factors, as they are prepared and written.
struct alignas(256) PreparedChunk {
  char panels[kPackedPanels];
  Factors factors;

  [[nodiscard]] __device__ __forceinline__ char* t() { return panels; }
  [[nodiscard]] __device__ __forceinline__ char* p() { return panels + kOfSecond; }
};
inline constexpr int kPreparedBytes = kPackedPanels + static_cast<int>(sizeof(Factors));

/// Of a piece of a record: panel `s`, and behind the last one the factors.
__device__ __forceinline__ constexpr int bytes_with_panel(int s) {
  return panel_bytes(s) + (s == kPanels - 1 ? static_cast<int>(sizeof(Factors)) : 0);
}

/// The same as the scan reads it.
struct alignas(1024) SpreadChunk {
  char panels[kSpreadPanels];
  Factors factors;

  [[nodiscard]] __device__ __forceinline__ const char* t_tile() const { return panels; }
  [[nodiscard]] __device__ __forceinline__ const char* p_tile() const { return panels + kOfSecond; }
};

/// Gates and beta of a chunk, see chunk_gates.cuh.
struct alignas(16) ChunkInputs {
  float2 gate[kChunk];  ///< G in two terms, base 2
  float sign[kChunk];   ///< of the product of the decays
  float beta[kChunk];
};

/// What the first kernel of a call leaves behind a record for those who prepare and read it.
struct alignas(16) RecordHead {
  int first, count;  ///< packed token, tokens; no tokens: nothing to prepare
  int ready;         ///< becomes 1 when the record is there
};

/// A record in the workspace: what is prepared, its inputs, its head.
inline constexpr int kRecordInputs = (kPreparedBytes + 127) / 128 * 128;
inline constexpr int kRecordHead = kRecordInputs + static_cast<int>(sizeof(ChunkInputs));
inline constexpr int kRecordBytes = (kRecordHead + int{sizeof(RecordHead)} + 127) / 128 * 128;

/// The workspace begins with it.
struct alignas(256) Tickets {
  int units;  ///< of preparation that are taken
};

__device__ __forceinline__ Tickets& tickets_of(const Params& p) {
  return *static_cast<Tickets*>(p.workspace);
}
template <int kBytes = kRecordBytes>
__device__ __forceinline__ char* record_of(const Params& p, int record, int hv) {
  return static_cast<char*>(p.workspace) + sizeof(Tickets) +
         (static_cast<int64_t>(record) * p.HV + hv) * kBytes;
}
template <int kOffset = kRecordHead>
__device__ __forceinline__ RecordHead& head_of(char* record) {
  return *reinterpret_cast<RecordHead*>(record + kOffset);
}

/// Entries of the columns before block w (w = 1, 2, 3) begin at 8 w (w - 1).
inline constexpr int kColumnsBefore = 16 + 32 + 48;

/// What a group of 128 threads prepares at a time: a chunk for up to kPair value heads of one query
/// and key head, which share its products.
inline constexpr int kPair = 2;
struct PreparationUnit {
  int record;
  int hv[kPair], heads;
  int h, first, count;
};

/// Factors of one head of a unit.
struct HeadFactors {
  float a_row[kChunk], a_column[kChunk];  ///< of A; a_column is that of P on the diagonal, too
  float p_row[kChunk], t_row[kChunk];     ///< with e^(G_i - G_a), a the end of the block before i's
  float p_diagonal[kChunk];               ///< rows of P in the diagonal blocks
  float t_column[kColumnsBefore];         ///< e^(G_a - G_j) of the columns j before each block,
  float p_column[kColumnsBefore];         ///< and the same times a_column[j]
};

/// Shared memory of such a group.
struct alignas(1024) PreparationStorage {
  union {
    struct {
      char k[2 * kTileBytes], q[2 * kTileBytes];
    } rows;
    struct {
      char high[kTileBytes], low[kTileBytes];
    } terms[kPair];  ///< A, then T block by block, as two bf16 terms: when the products are done
  };
  PreparedChunk prepared[kPair];
  ChunkInputs inputs[kPair];
  HeadFactors factors[kPair];
  float squares[2 * kChunk];  ///< of k, then of q
  PreparationUnit unit;
  uint64_t loaded;  ///< barrier: the unit is known, its rows and inputs are there
  uint64_t done;    ///< barrier: it is prepared
};
/// A block of prefill_gdn_prepare: groups of 128 threads, and behind them a warp for each that
/// takes its units, and has them copied in and out.
inline constexpr int kPreparationGroups = 3;
inline constexpr int kPreparationThreads = kPreparationGroups * (128 + 32);

/// What a scan walks through. Each has a kernel of its own: what one does between sequences costs
/// the others registers in the loop over the chunks (2 % of the time of a long sequence, H200).
enum class Walk : uint8_t {
  kSequences,
  kCheckpoints,  ///< sequences whose states are asked for on the way
  kSegments,     ///< sequences and segments, whose start states it folds (segments.hpp)
  kMaps,         ///< segments, for their maps alone: no outputs
};

/// How a block of prefill_gdn_scan is made up: one warpgroup serves, kScans scan 64 values each.
template <int kScanGroups, Walk kWalk>
struct ScanConfig {
  static constexpr bool kCheckpoints = kWalk == Walk::kCheckpoints;
  static constexpr bool kMaps = kWalk == Walk::kMaps;
  static constexpr bool kFolds = kWalk == Walk::kSegments;
  static constexpr bool kChannelGates = false;
  static constexpr int kTokens = kChunk;
  using Prepared = SpreadChunk;
  static constexpr int kPreparedSize = kPreparedBytes;
  static constexpr int kRecordSize = kRecordBytes;
  static constexpr int kHead = kRecordHead;
  static constexpr int kScans = kScanGroups;
  static constexpr int kStages = 3;
  static constexpr int kBlockValues = kScans * kTileColumns;
  static constexpr int kGroup = 128;  ///< threads of a warpgroup
  static constexpr int kThreads = (1 + kScans) * kGroup;
  static constexpr int kServiceRegisters = 40;
  static constexpr int kScanRegisters = 232;
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

/// Who passes what to whom: watcher --(ready)--> copier --(stage)--> scans --(o)--> writer.
template <class C>
struct ScanStorage : KeyStages<C> {
  alignas(1024) char v[C::kStages][C::kScans * kBytesOfTile<C::kTokens>];
  typename C::Prepared prepared[C::kStages];
  alignas(1024) char o[C::kScans][kBytesOfTile<C::kTokens>];
  OutputPlace outputs[C::kScans];
  uint64_t record_ready[C::kStages];
  uint64_t stage_full[C::kStages], stage_free[C::kStages];
  uint64_t output_full[C::kScans], output_free[C::kScans];

  /// Where the terms of a piece of a map are put, high and low ones.
  __device__ __forceinline__ char* map_terms(int stage, bool low) {
    if constexpr (C::kChannelGates) {
      return prepared[stage].keys_queries + (low ? 2 * kBytesOfTile<C::kTokens> : 0);
    } else {
      return low ? this->q[stage] : this->k[stage];
    }
  }
};

}  // namespace goldenrule::gpu::prefill
