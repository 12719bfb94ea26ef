// SPDX-License-Identifier: Apache-2.0
//
// What a block of any attention kernel begins and ends with: its place in the grid, and the largest
// score and the sum of a row as its lse.
#pragma once

#include "gpu/attention/requests.cuh"

namespace goldenrule::gpu::attention {

extern __shared__ __align__(1024) unsigned char attention_shared[];

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

/// M as it is subtracted: -inf - -inf would be NaN.
__device__ __forceinline__ float finite_largest(float largest) {
  return largest == kMinusInfinity ? 0.f : largest;
}

/// Which work a block has.
struct Work {
  int n, h, tile, rank;
};

__device__ __forceinline__ Work work_of_block(const Params& p) {
  const int block = static_cast<int>(blockIdx.x);
  const int cluster = p.by_splits.quotient(block);
  const int row = p.by_tiles.quotient(cluster);
  Work w{};
  w.rank = block - cluster * p.splits;
  w.tile = cluster - row * p.tiles;
  w.n = p.by_heads.quotient(row);
  w.h = row - w.n * p.grid_heads;
  return w;
}

/// Where the output of a row goes; `there` false: it is no row of the request.
struct RowPlace {
  int token, head;
  bool there, valid;
};

__device__ __forceinline__ void store_lse(const Params& p, const RowPlace& at, float largest,
                                          float sum) {
  if (p.lse == nullptr) return;
  const float lse =
      at.valid && !(sum == 0.f) ? (largest + log2f(sum)) * p.lse_factor : kMinusInfinity;
  p.lse[at.token * p.lse_token + at.head * p.lse_head] = lse;
}

}  // namespace goldenrule::gpu::attention
