// SPDX-License-Identifier: Apache-2.0
//
// Who holds what in the kernel for a few tokens (mtp.cuh). It multiplies matrices of 16 value
// rows, 16 key channels and 8 tokens. Which row or channel a place in such a matrix means is free
// as long as all matrices agree, so it is chosen by the memory: with g = lane / 4, t = lane % 4,
//
//   channels of step i    16 i + 4 t + {0, 1, 2, 3}, four neighbours per lane; of bf16 states in
//                         layout vk, steps 2 n and 2 n + 1 share the eight from 32 n + 8 t on
//   rows of the warp      L g + {0 .. L-1}, L = 2 kRowTiles neighbours per lane
//   tokens                g where k and q are read, 2 t and 2 t + 1 in products with the state
//
// So k and q come from memory as operands, v, o and the state of layout kv as vectors along V, and
// the state of layout vk as vectors of 16 bytes along K: four lanes write 64 neighbouring bytes at
// once, and memory that is written by 32 takes 1.14 to 1.25 times as long. A lane keeps the same
// elements of all states.
#pragma once

#include "gpu/delta/shared/config.cuh"

namespace goldenrule::gpu::recurrent {

template <StateFormat Format, Shape S>
struct MtpConfig {
  using State = StateOf<Format>;
  static constexpr bool kVK = !Format.kv;
  static constexpr int kRowTiles = S.rows;  ///< matrices of 16 value rows per warp, 1 or 2
  static constexpr int kWarps = S.warps;
  static constexpr int kMinBlocks = bounding_blocks(S);
  static constexpr int kPaddedK = 128;
  static constexpr bool kExact = true;

  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kBlockRows = kWarps * kWarpRows;
  static constexpr int kLaneRows = 2 * kRowTiles;
  static constexpr int kChannelSteps = kPaddedK / 16;
  /// Steps of which a lane's channels are neighbours.
  static constexpr int kStepsTogether = kVK && sizeof(State) == 2 ? 2 : 1;
  static_assert(kRowTiles == 1 || kRowTiles == 2, "a vector along V is 2 or 4 rows");
};

/// x[row][token]: numbers of the lane's rows and of tokens 2t and 2t + 1.
template <class C>
using LaneTokens = float[C::kLaneRows][2];

/// The first of the four channels of lane t in a step.
template <class C>
__device__ constexpr int first_channel(int step, int t) {
  constexpr int kTogether = C::kStepsTogether;
  return step / kTogether * (16 * kTogether) + 4 * (kTogether * t + step % kTogether);
}

/// Where a channel stands: first_channel(step, t) is at most three below it.
struct ChannelPlace {
  int step, t;
};
template <class C>
__device__ constexpr ChannelPlace place_of_channel(int channel) {
  constexpr int kTogether = C::kStepsTogether;
  const int four = channel % (16 * kTogether) / 4;
  return {channel / (16 * kTogether) * kTogether + four % kTogether, four / kTogether};
}

/// The place of a lane in its matrices.
struct Fragment {
  int warp, g, t;
};

__device__ __forceinline__ Fragment this_fragment() {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return {static_cast<int>(threadIdx.x) / kWarp, lane / 4, lane % 4};
}

}  // namespace goldenrule::gpu::recurrent
