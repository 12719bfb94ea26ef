// SPDX-License-Identifier: Apache-2.0
//
// The state of 16 value rows in the registers of a warp, and how a chunk of eight tokens passes it:
//
//     X = S k^T,  Y = S q^T            three bf16 terms of S, none lost (common/bf16_terms.cuh)
//     d, o                             by the triangle, token after token (shared/mtp_solve.cuh)
//     S' = alpha(0..n] S + sum_{j<n} (alpha(j..n] f_j d_j) k_j        three terms of the bracket
//
// k and q are the bf16 numbers that they are, so every product is exact. The tensor cores truncate
// their sums; so each sums no more than 16 products, and the accumulator S is not among them: what
// is added to it is added in fp32, rounded to nearest, once for a chunk where a kernel that takes
// token by token rounds eight times.
//
// A lane holds value rows 2g and 2g + 1 of the warp, and channels 8 n + 2t and 8 n + 2t + 1 of both
// in state[4 n] to state[4 n + 3] (chunk8_rows.cuh): as an accumulator and as a left operand.
#pragma once

#include "gpu/common/bf16_terms.cuh"
#include "gpu/delta/prefill/chunk8_rows.cuh"
#include "gpu/delta/prefill/chunk8_tokens.cuh"
#include "gpu/delta/shared/mtp_solve.cuh"

namespace goldenrule::gpu::prefill {

/// The weights of a lane's tokens, 2t and 2t + 1, as mtp_solve.cuh wants them.
struct Chunk8Columns {
  const Chunk8Weights& weights_of;
  float beta[2];

  __device__ __forceinline__ Chunk8Columns(const Chunk8Weights& of, Fragment lane)
      : weights_of(of), beta{of.beta[2 * lane.t], of.beta[2 * lane.t + 1]} {}

  __device__ __forceinline__ void weights(int j, Fragment lane, float (&a)[2],
                                          float (&b)[2]) const {
    const auto& of = weights_of.weight[j];
    const float2 with_k = *reinterpret_cast<const float2*>(&of[0][2 * lane.t]);
    const float2 with_q = *reinterpret_cast<const float2*>(&of[1][2 * lane.t]);
    a[0] = with_k.x, a[1] = with_k.y;
    b[0] = with_q.x, b[1] = with_q.y;
  }
};

template <class C>
class Chunk8State : public WarpRows<C, 2> {
 public:
  using WarpRows<C, 2>::WarpRows;

  /// x = S . k_t and y = S . q_t, each times its factor.
  __device__ __forceinline__ void multiply(const Chunk8Rows& k_rows, const Chunk8Rows& q_rows,
                                           const Chunk8Weights& weights, LaneTokens<C>& x,
                                           LaneTokens<C>& y) const {
    float sum_x[4] = {}, sum_y[4] = {};
#pragma unroll
    for (int i = 0; i < kHeadKeys / 32; ++i) {
      uint32_t k[4], q[4];
      read_tokens(k, k_rows, i, lane_id_);
      read_tokens(q, q_rows, i, lane_id_);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        PairTerms s[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &state_[16 * i + 8 * half + 2 * j];
          s[j] = split_pair(pair[0], pair[1]);
        }
        float with_k[4] = {}, with_q[4] = {};
#pragma unroll
        for (int term = kTerms - 1; term >= 0; --term) {  // small ones first
          const uint32_t a[4] = {s[0].term[term], s[1].term[term], s[2].term[term],
                                 s[3].term[term]};
          ptx::multiply_add(with_k, a, make_uint2(k[2 * half], k[2 * half + 1]));
          ptx::multiply_add(with_q, a, make_uint2(q[2 * half], q[2 * half + 1]));
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum_x[j] += with_k[j];
          sum_y[j] += with_q[j];
        }
      }
    }
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int token = 2 * lane_.t + c;
        x[row][c] = sum_x[2 * row + c] * weights.k_from_start[token];
        y[row][c] = sum_y[2 * row + c] * weights.q_from_start[token];
      }
    }
  }

  /// Becomes the state after the first `end` tokens, end >= 1. Later ones take no part, not even as
  /// a NaN times 0: they are cut out of both operands.
  __device__ __forceinline__ void follow(const Chunk8Rows& k_rows, const Chunk8Weights& weights,
                                         const LaneTokens<C>& d, int end) {
    float decay = 1.f, weight[2] = {};  // alpha(j..end] f_j
    uint32_t mask = 0;
#pragma unroll
    for (int t = 0; t < kMtpTokens; ++t) {
      if (t >= end) break;
      const float alpha = weights.alpha[t];
      decay *= alpha;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int token = 2 * lane_.t + c;
        weight[c] = token == t ? weights.k_factor[token] : weight[c] * alpha;
        if (token <= t) mask |= c == 0 ? 0x0000ffffu : 0xffff0000u;
      }
    }
    uint32_t large[4], small[4];
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
      const PairTerms e = split_pair(weight[0] * d[row][0], weight[1] * d[row][1]);
      large[row] = e.term[0] & mask;
      large[2 + row] = e.term[1] & mask;
      small[row] = e.term[2] & mask;
      small[2 + row] = 0;
    }
#pragma unroll
    for (int i = 0; i < kHeadKeys / 32; ++i) {
      uint32_t keys[4];
      read_channels(keys, k_rows, i, lane_id_);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const uint32_t k = keys[m] & mask;
        float sum[4] = {};
        ptx::multiply_add(sum, small, make_uint2(k, k));
        ptx::multiply_add(sum, large, make_uint2(k, k));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& s = state_[16 * i + 4 * m + j];
          s = fmaf(decay, s, sum[j]);
        }
      }
    }
  }

 private:
  using WarpRows<C, 2>::lane_, WarpRows<C, 2>::lane_id_, WarpRows<C, 2>::state_;
};

}  // namespace goldenrule::gpu::prefill
