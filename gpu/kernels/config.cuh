// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is specialized for, and who holds which element of the state.
//
// A block owns kRows value rows of one head: columns of S in R^{K x V}, independent of each other
// through all tokens. A warp is 8 lanes along K (lk) times 4 along V (lv); a thread keeps a
// register tile of kR rows times kE = KP/8 key channels. That shape makes every access a run of
// whole 32-byte sectors, in either layout, and needs three shuffle steps for a sum over K where
// one warp per row would need five:
//
//   layout vk: vectors of 16 bytes along K; the 8 lanes lk of a row read 128 contiguous bytes
//   layout kv: vectors of 8 or 16 bytes along V; the 4 lanes lv read contiguous bytes of 8 rows
//
// The channels of a thread and the order of its sums depend on state type, layout and KP only,
// never on kR, the warps or the batch: all specializations of a shape give the same bits.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::gpu {

inline constexpr int kWarp = 32;
inline constexpr int kLanesK = 8;
inline constexpr int kLanesV = kWarp / kLanesK;

/// State: float or __nv_bfloat16. ChannelGate: alpha per key channel, else one per head (the
/// general path always takes the first). KP: K rounded up. Exact: K == KP, V % kRows == 0 and all
/// states can be accessed in whole vectors. TC: tokens prepared at a time. Chunks: register tiles
/// of R rows that a thread works through, one after the other (decode only).
template <class State_, int Layout_, bool ChannelGate_, int KP_, bool Exact_, int TC_, int R_,
          int Warps_, int MinBlocks_, int Chunks_ = 1>
struct Config {
  using State = State_;
  static constexpr bool kVK = Layout_ == GOLDENRULE_GPU_STATE_VK;
  static constexpr bool kChannelGate = ChannelGate_;
  static constexpr int kKP = KP_;
  static constexpr bool kExact = Exact_;
  static constexpr int kTC = TC_;
  static constexpr int kR = R_;
  static constexpr int kWarps = Warps_;
  static constexpr int kMinBlocks = MinBlocks_;
  static constexpr int kChunks = Chunks_;

  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kAllR = kR * kChunks;  // rows of a thread
  static constexpr int kWarpRows = kLanesV * kAllR;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kE = kKP / kLanesK;
  /// Elements of one memory vector.
  static constexpr int kVector = kVK || kAllR > 16 / static_cast<int>(sizeof(State))
                                     ? 16 / static_cast<int>(sizeof(State))
                                     : kAllR;
  /// Contiguous key channels of a thread.
  static constexpr int kRun = kVK ? kVector : 4;
  static_assert(kE % kRun == 0 && kRun % 4 == 0, "KP holds whole runs of channels");
  static_assert(kR == 1 || kR == 2 || kR == 4 || kR == 8, "sums over lanes halve the rows");

  /// Distance of lanes that are neighbours along K. Eight consecutive lanes, which shared memory
  /// serves together, read one row of layout vk, and two rows of 64 bytes of layout kv.
  static constexpr int kLaneStepK = kVK ? 1 : kLanesV;

  __device__ static constexpr int lane_of(int lk, int lv) {
    return kVK ? lv * kLanesK + lk : lk * kLanesV + lv;
  }

  /// Key channel of element e of lane lk, also of the lanes that add up the norm of q or k.
  __device__ static constexpr int channel(int e, int lk) {
    return e / kRun * (kLanesK * kRun) + lk * kRun + e % kRun;
  }
  /// Value row, within the rows of the warp, of row r of lane lv, 0 <= r < kAllR.
  __device__ static constexpr int row(int r, int lv) {
    return kVK ? r * kLanesV + lv : (r / kVector * kLanesV + lv) * kVector + r % kVector;
  }
};

/// The place of a thread.
struct Lane {
  int warp, lk, lv;
};

template <class C>
__device__ __forceinline__ Lane this_lane() {
  // Unsigned, so that division and remainder are one instruction each.
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  if constexpr (C::kVK) return {warp, lane % kLanesK, lane / kLanesK};
  return {warp, lane / kLanesV, lane % kLanesV};
}

}  // namespace goldenrule::gpu
