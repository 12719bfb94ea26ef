// SPDX-License-Identifier: Apache-2.0
//
// Decayed products between the tokens of one chunk,
//
//     kk_ij = sum_c k_ic k_jc D_ijc,   qk_ij = sum_c q_ic k_jc D_ijc,   D_ijc = alpha_j+1,c ..
//     alpha_ic,
//
// on the tensor cores, with decays folded into bf16 operands. D is the product of a factor of row i
// and one of column j only by way of a token between them: with a boundary b, j < b <= i,
//
//     D_ij = (alpha_b .. alpha_i) (alpha_j+1 .. alpha_b-1).
//
// Both factors are products of decays, so neither overflows where decays are at most 1, and a 0 or
// a sign in between is what it should be. 32 tokens are halved five times: the level of size m =
// 16, 8, 4, 2, 1 has the blocks of m x m whose rows are the upper and whose columns are the lower m
// of 2 m tokens, with b between them. Each pair i > j is in one block. (An anchor before both
// tokens needs one level for 16 tokens, but e^(G_b - G_j) then overflows for gates without a
// bound.)
//
// Below m = 16 a warp does all blocks of a level of 16 tokens at once, over 64 channels: rows g of
// the left operand are k of the upper tokens, rows 8 + g their q, columns the lower tokens; the
// products of different blocks are dropped. k and q are as they are given: norms multiply the sums.
#pragma once

#include "gpu/prefill/kda_decays.cuh"
#include "gpu/prefill/terms.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kLevels = 4;  ///< m = 8, 4, 2, 1

/// Token of a level's row g, and of its column j.
__device__ __forceinline__ constexpr int upper_token(int m, int g) {
  return g / m * 2 * m + m + g % m;
}
__device__ __forceinline__ constexpr int lower_token(int m, int j) { return j / m * 2 * m + j % m; }

__device__ __forceinline__ uint32_t decayed(uint32_t pair, float2 by) {
  return bf16_pair(bf16_low(pair) * by.x, bf16_high(pair) * by.y);
}

/// The tokens of a thread: two channels of k, q and alpha.
struct KdaTokens {
  uint32_t k[kBlockTokens], q[kBlockTokens];
  float2 alpha[kBlockTokens];
};

/// One level, by one warp; `memory` is its own.
template <int m>
__device__ __forceinline__ void multiply_level(const KdaTokens& x, char* memory, int lane,
                                               float (&sum)[4]) {
  constexpr int kSteps = 4;
  char* left = memory + 4 * lane;
  char* right = left + kLevelLeftRows * kLevelRowBytes;
#pragma unroll
  for (int block = 0; block < 8 / m; ++block) {
    const int middle = (2 * block + 1) * m;
    float2 decay = make_float2(1.f, 1.f);
#pragma unroll
    for (int e = 0; e < m; ++e) {
      const int row = block * m + e;
      decay = e == 0 ? x.alpha[middle] : decay * x.alpha[middle + e];
      *reinterpret_cast<uint32_t*>(left + row * kLevelRowBytes) = decayed(x.k[middle + e], decay);
      *reinterpret_cast<uint32_t*>(left + (8 + row) * kLevelRowBytes) =
          decayed(x.q[middle + e], decay);
    }
#pragma unroll
    for (int e = m - 1; e >= 0; --e) {
      const int token = middle - m + e;
      decay = e == m - 2 ? x.alpha[token + 1] : decay * x.alpha[token + 1];
      *reinterpret_cast<uint32_t*>(right + (block * m + e) * kLevelRowBytes) =
          e == m - 1 ? x.k[token] : decayed(x.k[token], decay);
    }
  }
  __syncwarp();
  const uint32_t rows = ptx::shared_address(memory) +
                        static_cast<uint32_t>(lane % 16 * kLevelRowBytes + lane / 16 * 16);
  const uint32_t columns =
      ptx::shared_address(memory) +
      static_cast<uint32_t>((kLevelLeftRows + lane % 8) * kLevelRowBytes + lane / 8 * 16);
#pragma unroll
  for (int s = 0; s < kSteps; s += 2) {
    uint32_t a[4], next[4], b[4];
    ptx::load_matrices(a, rows + 32 * s);
    ptx::load_matrices(next, rows + 32 * (s + 1));
    ptx::load_matrices(b, columns + 32 * s);
    ptx::multiply_add(sum, a, make_uint2(b[0], b[1]));
    ptx::multiply_add(sum, next, make_uint2(b[2], b[3]));
  }
  __syncwarp();  // the memory is free for the next level
}

/// Calls f(row i, column j, element) for each element of `sum` that belongs to a block of the
/// level; element + 2 is that of q.
template <int m, class F>
__device__ __forceinline__ void for_level_pairs(int lane, F&& f) {
  const int g = lane / 4;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int j = 2 * (lane % 4) + e;
    if (g / m == j / m) f(upper_token(m, g), lower_token(m, j), e);
  }
}

}  // namespace goldenrule::gpu::prefill
