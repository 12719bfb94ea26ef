// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is specialized for, and who holds which element of the state.
//
// A block owns kBlockRows value rows of one head: columns of S in R^{K x V}, independent of each
// other through all tokens. A warp is 8 lanes along K (lk) times 4 along V (lv); a thread keeps a
// register tile of kTileRows rows times kThreadChannels = kPaddedK / 8 key channels. That shape
// makes every access a run of whole 32-byte sectors, in either layout, and needs three shuffle
// steps for a sum over K where one warp per row would need five:
//
//   layout vk: vectors of 16 bytes along K; the 8 lanes lk of a row read 128 contiguous bytes
//   layout kv: vectors of 8 or 16 bytes along V; the 4 lanes lv read contiguous bytes of 8 rows
//
// The channels of a thread and the order of its sums depend on the storage type of the state, its
// layout and kPaddedK only, never on kTileRows, the warps or the batch: specializations that differ
// in nothing else give the same bits.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "gpu/common/lane_sums.cuh"
#include "gpu/delta/shared/shape.hpp"

namespace goldenrule::gpu::recurrent {

inline constexpr int kLanesV = kWarp / kSumLanes;

template <StateFormat Format>
using StateOf = std::conditional_t<Format.bf16, __nv_bfloat16, float>;

/// What a kernel on the fp32 pipe is specialized for.
struct Specialization {
  StateFormat format;
  bool channel_gate;  ///< alpha per key channel, else one per head; kernels not exact take both
  bool exact;  ///< K == padded_k, V % kBlockRows == 0, all states can be accessed in whole vectors
  int padded_k;          ///< K rounded up
  int tokens_per_round;  ///< tokens prepared at a time
  Shape shape;
};

template <Specialization S>
struct Config {
  using State = StateOf<S.format>;
  static constexpr bool kVK = !S.format.kv;
  static constexpr bool kChannelGate = S.channel_gate;
  static constexpr bool kExact = S.exact;
  static constexpr int kPaddedK = S.padded_k;
  static constexpr int kTokensPerRound = S.tokens_per_round;
  static constexpr int kTileRows = S.shape.rows;
  static constexpr int kChunks = S.shape.chunks;
  static constexpr int kWarps = S.shape.warps;
  /// Decode has registers enough on every architecture.
  static constexpr int kMinBlocks =
      S.tokens_per_round == 1 ? S.shape.min_blocks : bounding_blocks(S.shape);

  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kProducts = kThreads;  ///< columns of TokenStorage::product
  static constexpr int kThreadRows = kTileRows * kChunks;
  static constexpr int kWarpRows = kLanesV * kThreadRows;
  static constexpr int kBlockRows = kWarps * kWarpRows;
  static constexpr int kThreadChannels = kPaddedK / kSumLanes;
  /// Elements of one memory vector.
  static constexpr int kVectorElements = kVK || kThreadRows > 16 / static_cast<int>(sizeof(State))
                                             ? 16 / static_cast<int>(sizeof(State))
                                             : kThreadRows;
  /// Contiguous key channels of a thread.
  static constexpr int kRunChannels = kVK ? kVectorElements : 4;
  static_assert(kThreadChannels % kRunChannels == 0 && kRunChannels % 4 == 0,
                "kPaddedK holds whole runs of channels");
  static_assert(kTileRows == 1 || kTileRows == 2 || kTileRows == 4 || kTileRows == 8,
                "sums over lanes halve the rows");

  /// Distance of lanes that are neighbours along K. Eight consecutive lanes, which shared memory
  /// serves together, read one row of layout vk, and two rows of 64 bytes of layout kv.
  static constexpr int kLaneStepK = kVK ? 1 : kLanesV;

  __device__ static constexpr int lane_of(int lk, int lv) {
    return kVK ? lv * kSumLanes + lk : lk * kLanesV + lv;
  }

  /// Key channel of element e of lane lk, also of the lanes that add up the norm of q or k.
  __device__ static constexpr int channel(int e, int lk) {
    return e / kRunChannels * (kSumLanes * kRunChannels) + lk * kRunChannels + e % kRunChannels;
  }
  /// Value row, within the rows of the warp, of row r of lane lv, 0 <= r < kThreadRows.
  __device__ static constexpr int row(int r, int lv) {
    return kVK ? r * kLanesV + lv
               : (r / kVectorElements * kLanesV + lv) * kVectorElements + r % kVectorElements;
  }
};

/// The place of a thread: its warp in the block, and its lane along K and along V.
struct ThreadPlace {
  int warp, lk, lv;
};

template <class C>
__device__ __forceinline__ ThreadPlace this_thread() {
  // Unsigned, so that division and remainder are one instruction each.
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  if constexpr (C::kVK) return {warp, lane % kSumLanes, lane / kSumLanes};
  return {warp, lane / kLanesV, lane % kLanesV};
}

}  // namespace goldenrule::gpu::recurrent
