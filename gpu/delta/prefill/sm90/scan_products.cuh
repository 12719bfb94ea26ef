// SPDX-License-Identifier: Apache-2.0
//
// The products of a scan: left operands in registers, right operands tiles in shared memory, and
// what is done to a result [64 values x tokens] between two of them. A lane holds N elements of a
// result for 2 N tokens. Columns are tokens, so
// factors of tokens multiply columns; lane t of four holds columns 8 n + 2 t and 8 n + 2 t + 1.
#pragma once

#include "gpu/delta/prefill/sm90/lower_tiles.cuh"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/delta/prefill/tile.cuh"
#include "gpu/ptx/warpgroup.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kKeySteps = kHeadKeys / 16;  ///< of a product over the channels

/// Left operand of 16 columns per four registers.
template <int N>
__device__ __forceinline__ void as_operand(const float (&x)[N], uint32_t (&a)[N / 2]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) a[i] = bf16_pair(x[2 * i], x[2 * i + 1]);
}

/// C (+)= A B^T for one step, a row of B for each token.
template <bool kAdd, int N>
__device__ __forceinline__ void multiply_rows(float (&c)[N], const uint32_t* a, uint64_t b) {
  static_assert(N == 32 || N == 16, "chunks of 64 or 32 tokens");
  if constexpr (N == 32) {
    ptx::multiply_64_rows<kAdd>(c, a, b);
  } else {
    ptx::multiply_32_rows<kAdd>(c, a, b);
  }
}

/// C (+)= S B^T over channels 16 kFrom to 16 kTo - 1.
template <int kFrom, int kTo, int N>
__device__ __forceinline__ void multiply_state(float (&c)[N], const uint32_t (&operand)[32],
                                               const char* tile) {
  const uint64_t rows = rows_descriptor(ptx::shared_address(tile));
#pragma unroll
  for (int s = kFrom; s < kTo; ++s) {
    const uint64_t step = advanced(rows, column_step(s));
    if (s == 0) {
      multiply_rows<false>(c, operand, step);
    } else {
      multiply_rows<true>(c, operand + 4 * s, step);
    }
  }
}

/// C += A B^T over the tokens of a chunk of 32, B a tile.
__device__ __forceinline__ void multiply_tokens(float (&c)[16], const uint32_t (&a)[8],
                                                const char* tile) {
  const uint64_t rows = rows_descriptor(ptx::shared_address(tile));
#pragma unroll
  for (int s = 0; s < 2; ++s) multiply_rows<true>(c, a + 4 * s, advanced(rows, column_step(s)));
}
/// The same over a chunk of 64, B a lower triangle, spread.
__device__ __forceinline__ void multiply_tokens(float (&c)[32], const uint32_t (&a)[16],
                                                const char* triangle) {
  const uint32_t panels = ptx::shared_address(triangle);
#pragma unroll
  for (int s = 0; s < kPanels; ++s) multiply_rows<true>(c, a + 4 * s, panel_descriptor(panels, s));
}

/// S += A K over 4 N rows of K, tokens of the chunk.
template <int N>
__device__ __forceinline__ void add_outer_products(float (&state)[64], const uint32_t* a,
                                                   const char* keys) {
  const uint64_t columns = columns_descriptor<4 * N>(ptx::shared_address(keys));
#pragma unroll
  for (int s = 0; s < N / 4; ++s) {
    ptx::multiply_128_columns<true>(state, a + 4 * s, advanced(columns, row_step(s)));
  }
}

/// X = v - S k, where the decays are part of k.
template <int N>
__device__ __forceinline__ void subtract_from_values(float (&y)[N], const uint32_t (&v)[N / 2]) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    y[2 * i] = bf16_low(v[i]) - y[2 * i];
    y[2 * i + 1] = bf16_high(v[i]) - y[2 * i + 1];
  }
}
/// X = v - key_decay (S k).
__device__ __forceinline__ void subtract_from_values(float (&y)[32], const uint32_t (&v)[16],
                                                     const float2 (&factors)[8]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    y[2 * i] = fmaf(-factors[i / 2].x, y[2 * i], bf16_low(v[i]));
    y[2 * i + 1] = fmaf(-factors[i / 2].y, y[2 * i + 1], bf16_high(v[i]));
  }
}

__device__ __forceinline__ void scale_columns(float (&y)[32], const float2 (&factors)[8]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    y[2 * i] *= factors[i / 2].x;
    y[2 * i + 1] *= factors[i / 2].y;
  }
}

}  // namespace goldenrule::gpu::prefill
