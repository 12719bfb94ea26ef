// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a head as operands of a warp, and what they are to each other: the closed form of
// token_weights.cuh for gates that are one number a head. q and k stay the bf16 numbers they are,
// which makes them exact operands; the norm, the scale and the decay of a token are factors on the
// sums:
//
//     f_t = factor of the norm of k_t,   F_t = that of q_t times scale
//     a_tj = f_t f_j alpha(j..t] (k_t . k_j),   b_tj = F_t f_j alpha(j..t] (q_t . k_j)
//
// Two products of matrices, [k; q] k^T and [k; q] q^T, hold all dot products and both norms, and
// their operands are the registers that k and q were loaded into.
//
// The tensor cores truncate their sums. So each sums 16 channels only, and these sums are added in
// fp32, rounded to nearest.
//
// P: the parameters of a group whose tokens lie at token_row(view, at.b, at.token0 + t, head). A
// group with ssm_state_indices has ssm_slot(p, b, t), too.
#pragma once

#include "gpu/common/elements.cuh"
#include "gpu/common/gates.cuh"
#include "gpu/common/lane_sums.cuh"
#include "gpu/common/slots.cuh"
#include "gpu/delta/shared/block.cuh"
#include "gpu/delta/shared/mtp_config.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu::recurrent {

/// x of the lane that reads token `token` and has t = 0.
template <class T>
__device__ __forceinline__ T of_token(T x, int token) {
  return __shfl_sync(kAllLanes, x, 4 * token);
}

/// v of tokens 2t and 2t + 1 in the rows of the lane.
template <class C>
class LaneValues {
 public:
  /// Issues the loads; those of tokens that the call does not have are 0. `row`: the lane's first.
  template <class P>
  __device__ __forceinline__ void request(const P& p, BlockPlace at, int count, int row,
                                          Fragment lane) {
    with_type(p.v_type, [&](auto type) {
      using Type = decltype(type);
      const bool aligned = p.v_unit >= C::kLaneRows * Type::kSize;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int t = 2 * lane.t + c;
        if (t >= count) continue;
        const char* from = token_row(p.v, at.b, at.token0 + t, at.hv) + row * Type::kSize;
        bits_[c] = load_some_bits<C::kLaneRows>(from, Type::kType, aligned);
      }
    });
  }

  /// v[row][token].
  template <class P>
  __device__ __forceinline__ void get(const P& p, LaneTokens<C>& v) const {
    with_type(p.v_type, [&](auto type) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float4 x = four_from_bits<decltype(type)>(bits_[c]);
        v[0][c] = x.x;
        v[1][c] = x.y;
        if constexpr (C::kLaneRows == 4) {
          v[2][c] = x.z;
          v[3][c] = x.w;
        }
      }
    });
  }

 private:
  uint4 bits_[2] = {};
};

template <class C>
class MtpTokens {
 public:
  /// Operands: the lane's channels of token g; 0 beyond the tokens of the row.
  uint2 k[C::kChannelSteps], q[C::kChannelSteps];
  /// Of token g, the same in the four lanes t. alpha and what follows: by finish().
  float alpha = 1.f;
  int64_t slot = kNoSlot;  // scatter form: where the state after it goes
  /// Of tokens 2t and 2t + 1.
  float beta[2];
  float k_factor[2];                       // f
  float k_from_start[2], q_from_start[2];  // f, F times the decay from the start
  float k_weight[2], q_weight[2];          // a and b with j = g; anything where j is later

  /// Issues the loads of `count` tokens. Nothing waits.
  template <class P>
  __device__ __forceinline__ void request(const P& p, BlockPlace at, int count, Fragment lane) {
    const bool here = lane.g < count;
    const int token = at.token0 + (here ? lane.g : 0);
    const char* k_row = token_row(p.k, at.b, token, at.h) + 2 * first_channel<C>(0, lane.t);
    const char* q_row = token_row(p.q, at.b, token, at.h) + 2 * first_channel<C>(0, lane.t);
#pragma unroll
    for (int i = 0; i < C::kChannelSteps; ++i) {
      k[i] = here ? *reinterpret_cast<const uint2*>(k_row + 2 * first_channel<C>(i, 0))
                  : make_uint2(0, 0);
      q[i] = here ? *reinterpret_cast<const uint2*>(q_row + 2 * first_channel<C>(i, 0))
                  : make_uint2(0, 0);
    }
    request_scalars(p, at, count, lane);
  }

  /// The same but for k and q.
  template <class P>
  __device__ __forceinline__ void request_scalars(const P& p, BlockPlace at, int count,
                                                  Fragment lane) {
    if (count == 0) return;
    const int place = lane.g < count ? lane.g : 0;
    const int token = at.token0 + place;
    const int head = p.gate_by_qk_head ? at.h : at.hv;
    beta_.request(token_row(p.beta, at.b, token, at.hv), p.beta_type);
    if (p.gate.data != nullptr) {
      gate_.request(token_row(p.gate, at.b, token, at.hv), p.gate_type);
    }
    if (p.A_log != nullptr) {
      A_log_.request(head_row(p.A_log, p.A_log_stride, head), p.A_log_type);
    }
    if (p.dt_bias != nullptr) {
      dt_bias_.request(head_row(p.dt_bias, p.dt_bias_stride, head), p.dt_bias_type);
    }
    if constexpr (requires { p.ssm_state_indices; }) {
      if (p.ssm_state_indices != nullptr && p.disable_state_update == 0) {
        slot = ssm_slot(p, at.b, place);
      }
    }
  }

  /// What the tokens are to each other, once k and q are there.
  template <class P>
  __device__ __forceinline__ void finish(const P& p, Fragment lane) {
    float with_k[4] = {}, with_q[4] = {};  // rows k_g and q_g, columns 2t and 2t + 1
#pragma unroll
    for (int i = 0; i < C::kChannelSteps; ++i) {
      const uint32_t rows[4] = {k[i].x, q[i].x, k[i].y, q[i].y};
      float sum_k[4] = {}, sum_q[4] = {};
      ptx::multiply_add(sum_k, rows, k[i]);
      ptx::multiply_add(sum_q, rows, q[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        with_k[j] += sum_k[j];
        with_q[j] += sum_q[j];
      }
    }
    const bool odd = lane.g % 2 != 0;
    const int diagonal = 4 * lane.g + lane.g / 2;
    const float kk = __shfl_sync(kAllLanes, odd ? with_k[1] : with_k[0], diagonal);
    const float qq = __shfl_sync(kAllLanes, odd ? with_q[3] : with_q[2], diagonal);
    const float own_k_factor = norm_factor(p, kk);
    const float own_q_factor = norm_factor(p, qq) * p.scale;
    const float own_beta = beta_of(p, beta_.get(p.beta_type));
    const float rate = expf(A_log_.get(p.A_log_type));  // what is absent was left 0
    alpha = alpha_of(p, gate_.get(p.gate_type), rate, dt_bias_.get(p.dt_bias_type));

    float from_start[2] = {1.f, 1.f}, from_own[2] = {1.f, 1.f};
#pragma unroll
    for (int i = 0; i < kMtpTokens; ++i) {
      const float decay = of_token(alpha, i);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (i <= 2 * lane.t + c) {
          from_start[c] *= decay;
          if (i > lane.g) from_own[c] *= decay;
        }
      }
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int token = 2 * lane.t + c;
      k_factor[c] = of_token(own_k_factor, token);
      const float q_factor = of_token(own_q_factor, token);
      beta[c] = of_token(own_beta, token);
      k_from_start[c] = k_factor[c] * from_start[c];
      q_from_start[c] = q_factor * from_start[c];
      k_weight[c] = with_k[c] * own_k_factor * k_factor[c] * from_own[c];
      q_weight[c] = with_q[c] * own_k_factor * q_factor * from_own[c];
    }
  }

  /// a and b of tokens 2t and 2t + 1 with j.
  __device__ __forceinline__ void weights(int j, Fragment lane, float (&a)[2],
                                          float (&b)[2]) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      a[c] = __shfl_sync(kAllLanes, k_weight[c], 4 * j + lane.t);
      b[c] = __shfl_sync(kAllLanes, q_weight[c], 4 * j + lane.t);
    }
  }

  /// Of token g, from its gate.
  template <class P>
  __device__ __forceinline__ float log_alpha(const P& p) const {
    return log_alpha_of(p, gate_.get_anew(p.gate_type), expf(A_log_.get_anew(p.A_log_type)),
                        dt_bias_.get_anew(p.dt_bias_type));
  }

 private:
  LoadedElement A_log_, beta_, gate_, dt_bias_;
};

}  // namespace goldenrule::gpu::recurrent
