// SPDX-License-Identifier: Apache-2.0
//
// (I + A)^-1 for a strictly lower triangular A of 64 x 64, by one warpgroup.
//
// Diagonal blocks of 16 by substitution in fp32, then twice the block formula
//
//     [ T11  0  ]        T21 = -(T22 A21) T11
//     [ T21 T22 ]
//
// on the tensor cores. A and T lie in shared memory as two tiles of bf16 whose sum they are, to
// 2^-17: products are high high + high low + low high. The entries of the inverse are those of a
// product of contractions, at most 2 in size, so what is dropped stays below 2e-5 even where all
// keys are the same; half an ulp of the bf16 result is 2e-3. A product of powers of A, or a factor
// in fp16, would be wrong without bound there.
#pragma once

#include "gpu/delta/prefill/sm90/lower_tiles.cuh"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/ptx/matrix.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::prefill {

// Lanes are hidden where addresses are made from them: else those of all steps are computed before
// the loop over the chunks, more than there are registers for.

/// A matrix of 64 x 64 as two tiles.
struct TermTiles {
  char* high;
  char* low;

  __device__ __forceinline__ void store_pair(int row, int column, float x, float y) const {
    const TwoTerms terms = two_terms(x, y);
    *reinterpret_cast<uint32_t*>(high + pair_offset(row, column)) = terms.high;
    *reinterpret_cast<uint32_t*>(low + pair_offset(row, column)) = terms.low;
  }
};

/// A 16 x 16 block as left operand of m16n8k16.
struct LeftTerms {
  uint32_t high[4], low[4];
};
/// A 16 x 16 block as two right operands, columns 0 to 7 and 8 to 15.
struct RightTerms {
  uint32_t high[4], low[4];

  [[nodiscard]] __device__ __forceinline__ uint2 high_half(int n) const {
    return make_uint2(high[2 * n], high[2 * n + 1]);
  }
  [[nodiscard]] __device__ __forceinline__ uint2 low_half(int n) const {
    return make_uint2(low[2 * n], low[2 * n + 1]);
  }
};

__device__ __forceinline__ LeftTerms left_block(const TermTiles& x, int row, int column, int lane) {
  const uint32_t at = piece_offset(row + lane % 16, column / 8 + lane / 16);
  LeftTerms block;
  ptx::load_matrices(block.high, ptx::shared_address(x.high) + at);
  ptx::load_matrices(block.low, ptx::shared_address(x.low) + at);
  return block;
}
__device__ __forceinline__ RightTerms right_block(const TermTiles& x, int row, int column,
                                                  int lane) {
  const uint32_t at = piece_offset(row + lane % 16, column / 8 + lane / 16);
  RightTerms block;
  ptx::load_transposed_matrices(block.high, ptx::shared_address(x.high) + at);
  ptx::load_transposed_matrices(block.low, ptx::shared_address(x.low) + at);
  return block;
}

/// A 16 x 16 block of a packed triangle, of which a lane holds what it holds of a product:
/// x[4 n + e] is element e of the columns 8 n on.
__device__ __forceinline__ void store_block(char* triangle, const float (&x)[8], int row,
                                            int column, int lane) {
  lane = ptx::hidden(lane);
  const uint32_t pairs[4] = {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]),
                             bf16_pair(x[6], x[7])};
  ptx::store_matrices(ptx::shared_address(triangle) + packed_block(row, column) +
                          piece_of_block(lane % 16, lane / 16),
                      pairs);
}
/// The same in two terms.
__device__ __forceinline__ void store_terms(const TermTiles& to, const float (&x)[8], int row,
                                            int column, int lane) {
  lane = ptx::hidden(lane);
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const TwoTerms terms = two_terms(x[2 * i], x[2 * i + 1]);
    high[i] = terms.high;
    low[i] = terms.low;
  }
  const uint32_t at = piece_offset(row + lane % 16, column / 8 + lane / 16);
  ptx::store_matrices(ptx::shared_address(to.high) + at, high);
  ptx::store_matrices(ptx::shared_address(to.low) + at, low);
}

/// Eight elements of a row, one piece of a tile.
__device__ __forceinline__ void store_piece(char* to, const uint32_t (&x)[4]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(x[0], x[1], x[2], x[3]);
}

/// C += A B for 16 x 16 blocks. Corrections are summed apart: shorter chains.
struct BlockSum {
  float main[2][4] = {}, correction[2][4] = {};

  __device__ __forceinline__ void multiply_add(const LeftTerms& a, const RightTerms& b) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      ptx::multiply_add(main[n], a.high, b.high_half(n));
      ptx::multiply_add(correction[n], a.high, b.low_half(n));
      ptx::multiply_add(correction[n], a.low, b.high_half(n));
    }
  }
  [[nodiscard]] __device__ __forceinline__ float value(int n, int e) const {
    return main[n][e] + correction[n][e];
  }
  __device__ __forceinline__ void values(float (&x)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = value(i / 4, i % 4);
  }
  /// The negative of the sum as left operand.
  [[nodiscard]] __device__ __forceinline__ LeftTerms negative() const {
    LeftTerms x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = i / 2, e = 2 * (i % 2);
      const TwoTerms terms = two_terms(-value(n, e), -value(n, e + 1));
      x.high[i] = terms.high;
      x.low[i] = terms.low;
    }
    return x;
  }
};

/// Row `i` of (I + A)^-1 for a 16 x 16 block of A, from x (I + A) = e_i: once x[m] is known, from
/// the last on, the columns before it take its part. `row_of(m, c)` is A[m][4 c .. 4 c + 3].
template <class F>
__device__ __forceinline__ void invert_unit_block(F&& row_of, int i, float (&x)[16]) {
#pragma unroll
  for (int j = 0; j < 16; ++j) x[j] = j == i ? 1.f : 0.f;
#pragma unroll
  for (int m = 15; m > 0; --m) {
#pragma unroll
    for (int c = 0; 4 * c < m; ++c) {
      const float4 a = row_of(m, c);
      const float entries[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (4 * c + e < m) x[4 * c + e] = fmaf(-x[m], entries[e], x[4 * c + e]);
      }
    }
  }
}

/// -(T22 A21) T11 for this warp's 16 rows from `row` on and 16 columns from `column` on, where T22
/// and A21 begin at row `first` and A21 and T11 at column `origin`. Blocks above the diagonal are
/// passed over: nothing is stored there.
template <int kBlocks>
__device__ __forceinline__ void merge_blocks(const TermTiles& x, int row, int first, int origin,
                                             int column, int lane, BlockSum& result) {
  BlockSum left[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    if (first + 16 * k > row) continue;
    const LeftTerms t22 = left_block(x, row, first + 16 * k, lane);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      left[n].multiply_add(t22, right_block(x, first + 16 * k, origin + 16 * n, lane));
    }
  }
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    if (origin + 16 * k < column) continue;
    result.multiply_add(left[k].negative(), right_block(x, origin + 16 * k, column, lane));
  }
}

}  // namespace goldenrule::gpu::prefill
