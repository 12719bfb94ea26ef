// SPDX-License-Identifier: Apache-2.0
//
// A part of a state as an operand of a warp, and the sums of its products by token.
#pragma once

#include "gpu/common/bf16_terms.cuh"
#include "gpu/delta/shared/mtp_config.cuh"

namespace goldenrule::gpu::recurrent {

/// The lane's part of a step: its rows by its four channels.
template <class C>
using LaneStep = typename C::State[C::kLaneRows][4];
/// The parts of kStepsTogether steps, which memory instructions move at once.
template <class C>
using LaneSteps = LaneStep<C>[C::kStepsTogether];

/// One tile of it as an operand: a[term], the largest term first.
template <class C>
struct StateOperand {
  static constexpr int kStateTerms = sizeof(typename C::State) == 4 ? kTerms : 1;
  uint32_t a[kStateTerms][4];

  __device__ __forceinline__ StateOperand(const LaneStep<C>& s, int tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& row = s[2 * tile + i % 2];
      const int channel = i / 2 * 2;
      if constexpr (kStateTerms > 1) {
        const PairTerms x = split_pair(row[channel], row[channel + 1]);
#pragma unroll
        for (int term = 0; term < kStateTerms; ++term) a[term][i] = x.term[term];
      } else {
        a[0][i] = __bfloat16_as_ushort(row[channel]) |
                  static_cast<uint32_t>(__bfloat16_as_ushort(row[channel + 1])) << 16;
      }
    }
  }
};

/// x and y of the lane's tokens from the sums of a product with k and of one with q, in tiles.
template <class C>
__device__ __forceinline__ void take_sums(const float (&with_k)[C::kRowTiles][4],
                                          const float (&with_q)[C::kRowTiles][4],
                                          const float (&k_factor)[2], const float (&q_factor)[2],
                                          LaneTokens<C>& x, LaneTokens<C>& y) {
#pragma unroll
  for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      x[row][c] = with_k[row / 2][row % 2 * 2 + c] * k_factor[c];
      y[row][c] = with_q[row / 2][row % 2 * 2 + c] * q_factor[c];
    }
  }
}

}  // namespace goldenrule::gpu::recurrent
