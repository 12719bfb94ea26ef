// SPDX-License-Identifier: Apache-2.0
//
// Who holds what in the kernel for a few tokens (verify.cuh). It multiplies matrices of 16 value
// rows, 16 key channels and 8 tokens. Which row or channel a place in such a matrix means is free
// as long as all matrices agree, so it is chosen by the memory: with g = lane / 4, t = lane % 4,
//
//   channels of step i    16 i + 4 t + {0, 1, 2, 3}, four neighbours a lane
//   rows of the warp      L g + {0 .. L-1}, L = 2 kTiles neighbours a lane
//   tokens                g where k and q are read, 2 t and 2 t + 1 in products with the state
//
// So k and q come from memory as operands, v, o and the state of layout kv as vectors along V, and
// the state of layout vk as vectors along K; a lane keeps the same elements of all states.
#pragma once

#include "gpu/kernels/config.cuh"

namespace goldenrule::gpu {

/// State: float or __nv_bfloat16. Tiles: matrices of 16 value rows a warp, 1 or 2.
template <class State_, int Layout_, int Tiles_, int Warps_, int MinBlocks_>
struct VerifyConfig {
  using State = State_;
  static constexpr bool kVK = Layout_ == GOLDENRULE_GPU_STATE_VK;
  static constexpr int kTiles = Tiles_;
  static constexpr int kWarps = Warps_;
  static constexpr int kMinBlocks = MinBlocks_;
  static constexpr int kKP = 128;
  static constexpr bool kExact = true;

  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kWarpRows = 16 * kTiles;
  static constexpr int kRows = kWarps * kWarpRows;
  static constexpr int kLaneRows = 2 * kTiles;
  static constexpr int kSteps = kKP / 16;
  static_assert(kTiles == 1 || kTiles == 2, "a vector along V is 2 or 4 rows");
};

/// The place of a lane in its matrices.
struct Fragment {
  int warp, g, t;
};

__device__ __forceinline__ Fragment this_fragment() {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return {static_cast<int>(threadIdx.x) / kWarp, lane / 4, lane % 4};
}

}  // namespace goldenrule::gpu
