// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of KDA prefill pass each other, and their shared memory. prefill_kda_prepare
// makes a record of each chunk of 32 tokens and value head, which the state does not enter;
// prefill_kda_scan, which is the scan of GDN in this configuration, carries the state over the
// chunks. A record is stored as the tensor cores of the scan read it, so it is copied as one block
// of bytes.
#pragma once

#include "gpu/delta/prefill/sm90/gdn_storage.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kKdaChunk = 32;     ///< tokens
inline constexpr int kBlockTokens = 16;  ///< half a chunk
inline constexpr int kKdaTileBytes = kBytesOfTile<kKdaChunk>;

/// Keys and queries of a chunk with all their factors as bf16, and T' and P of kda_prepare.cuh. A
/// gate for each channel cannot be taken out of a product over the channels, so it is part of the
/// operands.
struct alignas(1024) KdaChunk {
  /// Two tiles of 64 rows: k^ e^G in rows 0 to 31, scale q^ e^G in rows 32 to 63.
  char keys_queries[2 * kTileBytes];
  char update[2 * kKdaTileBytes];   ///< beta k^ e^(G_C - G)
  char corrections[kKdaTileBytes];  ///< T' in columns 0 to 31, P in columns 32 to 63
  float decay[kHeadKeys];           ///< e^G_C

  [[nodiscard]] __device__ __forceinline__ const char* keys() const { return keys_queries; }
  [[nodiscard]] __device__ __forceinline__ const char* queries() const {
    return keys_queries + kKdaTileBytes;
  }
  [[nodiscard]] __device__ __forceinline__ const char* t_tile() const { return corrections; }
  [[nodiscard]] __device__ __forceinline__ const char* p_tile() const {
    return corrections + column_step(2);
  }
};
inline constexpr int kKdaPreparedBytes =
    2 * kTileBytes + 3 * kKdaTileBytes + kHeadKeys * static_cast<int>(sizeof(float));

/// A record in the workspace: what is prepared, its head.
inline constexpr int kKdaRecordHead = kKdaPreparedBytes;
inline constexpr int kKdaRecordBytes =
    (kKdaRecordHead + static_cast<int>(sizeof(RecordHead)) + 127) / 128 * 128;

/// How a block of prefill_kda_scan is made up.
template <int kScanGroups, Walk kWalk>
struct KdaScanConfig : ScanConfig<kScanGroups, kWalk> {
  static constexpr bool kChannelGates = true;
  static constexpr int kTokens = kKdaChunk;
  static constexpr int kStages = 5;
  using Prepared = KdaChunk;
  static constexpr int kPreparedSize = kKdaPreparedBytes;
  static constexpr int kRecordSize = kKdaRecordBytes;
  static constexpr int kHead = kKdaRecordHead;
};

/// What a token is multiplied by.
struct alignas(16) KdaFactors {
  float key;    ///< 1 / |k|
  float query;  ///< scale / |q|
  float beta;
  float own;  ///< q . k
};

/// What both ways to multiply the tokens of a chunk with each other (kda_levels.cuh,
/// kda_anchors.cuh) leave for the inverse: A, then T, as two bf16 terms.
struct KdaTerms {
  char high[kKdaTileBytes], low[kKdaTileBytes];
};

/// Rows of operands that one warp writes and multiplies: 64 channels, and a gap that keeps rows in
/// different banks.
inline constexpr int kLevelRowBytes = 128 + 16;
inline constexpr int kLevelLeftRows = 16, kLevelRightRows = 8;

/// Of one warp: its decays, which are in registers before rows take their place.
union LevelMemory {
  float2 decay[kBlockTokens][32];  ///< the gates as they are given, then alpha
  char rows[(kLevelLeftRows + kLevelRightRows) * kLevelRowBytes];  ///< of a level, then sums
};

/// As tiles, two of 64 channels one behind the other.
struct AnchorOperands {
  char rows[2 * kKdaTileBytes];     ///< of the second 16 tokens: k, then q
  char columns[2 * kKdaTileBytes];  ///< of all tokens, for rows of their own 16
  char between[kKdaTileBytes];      ///< of the first 16 tokens, for rows of the second
};
union KdaOperands {
  AnchorOperands anchors;
  LevelMemory levels[4];  ///< of each warp
  KdaTerms terms;
};

/// Shared memory of a group of prefill_kda_prepare.
struct alignas(1024) KdaPreparationStorage {
  /// The record. Until their factors are known keys_queries holds k and q as they are given, and
  /// with levels update and corrections are operands for a while.
  KdaChunk chunk;
  KdaOperands operands;
  float diagonal[2][16][16];       ///< blocks of A on the diagonal
  float2 total[2][kHeadKeys / 2];  ///< product of alpha over 16 tokens
  KdaFactors factors[kKdaChunk];
  int asks_for_levels[4];  ///< of each warp, of its gates
  uint64_t loaded;         ///< barrier: k and q are there, T' and P of the record before copied out
  uint64_t inverted;       ///< barrier: the blocks of A on the diagonal are inverted
};
/// A block of prefill_kda_prepare, one on a multiprocessor: groups that share nothing.
inline constexpr int kKdaGroupThreads = 128;
/// `kBounded`: of gates that anchors always do for. What does for all gates has more registers.
template <bool kBounded>
inline constexpr int kKdaGroups = kBounded ? 4 : 3;
template <bool kBounded>
inline constexpr int kKdaPreparationThreads = kKdaGroups<kBounded>* kKdaGroupThreads;
template <bool kBounded>
inline constexpr std::size_t kKdaPreparationBytes = kKdaGroups<kBounded> *
                                                    sizeof(KdaPreparationStorage);
static_assert(kKdaPreparationBytes<true> <= 227 * 1024, "a block fits");

}  // namespace goldenrule::gpu::prefill
