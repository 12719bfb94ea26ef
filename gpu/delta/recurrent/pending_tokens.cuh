// SPDX-License-Identifier: Apache-2.0
//
// The pending tokens of a ring as operands of a warp. They are columns of the closed form whose
// corrections are known: with A_i = alpha(i..n] the decay from pending token i to the last,
//
//     S_n    = A_0 S_0 + sum_i A_i k_i d_i^T
//     S_n k_t = A_0 (S_0 k_t) + sum_i (A_i k_i . k_t) d_i        and likewise q_t
//
// so a verification needs neither S_n nor an order among them: one product of matrices makes the
// weights A_i k_i . [k_t; q_t], another multiplies them with d. Eight pending tokens are a group,
// which fits the operands of the tokens of the call: the weights come out of the first product
// where the second one wants them, pending tokens 2t and 2t + 1 of token g.
//
// d and the weights are exact sums of bf16 terms (term_products.cuh).
#pragma once

#include "gpu/delta/recurrent/mtp_state.cuh"
#include "gpu/delta/recurrent/ring_corrections.cuh"
#include "gpu/delta/shared/mtp_tokens.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
class PendingTokens {
 public:
  /// A_0.
  float decay = 1.f;

  /// `row`: the first value row of the lane.
  __device__ __forceinline__ PendingTokens(const Params& p, BlockPlace at,
                                           const RingCursors& cursors, int row, Fragment lane)
      : p_(p), at_(at), cursors_(cursors), row_(row), lane_(lane) {}

  /// Issues the loads of all gates and of the first group; what is not there is 0, and does not
  /// decay. Of the second group the rest comes when it is used: the states are still on their way.
  __device__ __forceinline__ void request() {
#pragma unroll
    for (int group = 0; group < kPendingGroups; ++group) {
      if (!is_here(group)) continue;
      const int place = cursors_.place(own(group));
      g_[group].request(token_row(p_.ring.g, cursors_.ring, place, at_.hv), p_.ring.g_type);
    }
    first_keys_.load(*this, 0);
    first_corrections_.load(p_, at_, cursors_, row_, lane_, 0);
  }

  /// Adds sum_i (A_i k_i . k_t) d_i to x and the same with q_t to y.
  __device__ __forceinline__ void multiply(const MtpTokens<C>& tokens, LaneTokens<C>& x,
                                           LaneTokens<C>& y) {
#pragma unroll
    for (int group = kPendingGroups - 1; group >= 0; --group) {
      if (!has(group)) continue;
      decay_group(group);
      if (group > 0) {
        Keys keys;
        RingCorrections<C> corrections;
        keys.load(*this, group);
        corrections.load(p_, at_, cursors_, row_, lane_, group);
        multiply_group(group, keys, corrections, tokens, x, y);
      } else {
        multiply_group(group, first_keys_, first_corrections_, tokens, x, y);
      }
    }
  }

  /// Stores S_n, made of S_0 here; behind multiply(). `head`: of the target.
  __device__ __forceinline__ void fold(const WarpState<C>& state, typename C::State* head,
                                       int outer) {
    using State = typename C::State;
    // Rows are found anew, not kept from before.
    lane_.g = ptx::hidden_off_90(lane_.g);
    lane_.t = ptx::hidden_off_90(lane_.t);
    Weighted weighted[kPendingGroups];
#pragma unroll
    for (int group = 0; group < kPendingGroups; ++group) {
      if (has(group)) weigh(group, weighted[group]);
    }
    const int channel = first_channel<C>(0, lane_.t);
    State* first = head + (C::kVK ? static_cast<int64_t>(row_) * C::kPaddedK + channel
                                  : static_cast<int64_t>(channel) * outer + row_);
#pragma unroll 1
    for (int step = 0; step < C::kChannelSteps; step += C::kStepsTogether) {
      LaneSteps<C> s;
      state.read(s, step, lane_);
#pragma unroll
      for (int more = 0; more < C::kStepsTogether; ++more) {
        float sum[2][C::kRowTiles][4] = {};
#pragma unroll
        for (int group = 0; group < kPendingGroups; ++group) {
          if (has(group)) add_to_step(sum, weighted[group], key(group, step + more));
        }
#pragma unroll
        for (int i = 0; i < 4 * C::kLaneRows; ++i) {
          State& z = s[more][i / 4][i % 4];
          round_to(z, fmaf(decay, to_float(z), sum[i % 4 / 2][i / 8][i / 4 % 2 * 2 + i % 2]));
        }
      }
      WarpState<C>::store(s, first, outer, step);
    }
  }

 private:
  /// Operand: the lane's channels of pending token g of a group.
  struct Keys {
    uint2 step[C::kChannelSteps];
    __device__ __forceinline__ void load(const PendingTokens& of, int group) {
#pragma unroll
      for (int i = 0; i < C::kChannelSteps; ++i) step[i] = of.key(group, i);
    }
  };

  /// A_i d_i of a group as operands.
  struct Weighted {
    uint32_t large[C::kRowTiles][4], small[C::kRowTiles][2];
  };

  __device__ __forceinline__ bool has(int group) const {
    return kMtpTokens * group < cursors_.count;
  }
  __device__ __forceinline__ int own(int group) const { return kMtpTokens * group + lane_.g; }
  __device__ __forceinline__ bool is_here(int group) const { return own(group) < cursors_.count; }

  __device__ __forceinline__ uint2 key(int group, int step) const {
    if (!is_here(group)) return make_uint2(0, 0);
    const int place = cursors_.place(own(group));
    const char* row =
        token_row(p_.ring.k, cursors_.ring, place, at_.h) + 2 * first_channel<C>(0, lane_.t);
    return *reinterpret_cast<const uint2*>(row + 2 * first_channel<C>(step, 0));
  }

  /// A_i of a group, with the groups behind it done: `decay` is that from its last token on.
  __device__ __forceinline__ void decay_group(int group) {
    const float alpha = expf(g_[group].get(p_.ring.g_type));
    weight_[group][0] = weight_[group][1] = decay;
#pragma unroll
    for (int i = kMtpTokens - 1; i >= 0; --i) {
      const float of_i = of_token(alpha, i);
      decay *= of_i;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (i > 2 * lane_.t + c) weight_[group][c] *= of_i;
      }
    }
  }

  __device__ __forceinline__ void multiply_group(int group, const Keys& keys,
                                                 const RingCorrections<C>& corrections,
                                                 const MtpTokens<C>& tokens, LaneTokens<C>& x,
                                                 LaneTokens<C>& y) const {
    float dots[4] = {};  // of k_g and of q_g with pending tokens 2t and 2t + 1
#pragma unroll
    for (int i = 0; i < C::kChannelSteps; ++i) {
      const uint32_t rows[4] = {tokens.k[i].x, tokens.q[i].x, tokens.k[i].y, tokens.q[i].y};
      float sum[4] = {};
      ptx::multiply_add(sum, rows, keys.step[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) dots[j] += sum[j];
    }
    const float* w = weight_[group];
    const PairTerms with_k = split_pair(dots[0] * w[0], dots[1] * w[1]);
    const PairTerms with_q = split_pair(dots[2] * w[0], dots[3] * w[1]);
    LaneTokens<C> d;
    corrections.get(p_.ring.d_type, d);
#pragma unroll
    for (int tile = 0; tile < C::kRowTiles; ++tile) {
      const PairTerms row[2] = {split_pair(d[2 * tile][0], d[2 * tile][1]),
                                split_pair(d[2 * tile + 1][0], d[2 * tile + 1][1])};
      add_products<C>(x, tile, row, with_k);
      add_products<C>(y, tile, row, with_q);
    }
  }

  __device__ __forceinline__ void weigh(int group, Weighted& to) const {
    RingCorrections<C> corrections;
    corrections.load(p_, at_, cursors_, row_, lane_, group);
    LaneTokens<C> d;
    corrections.get(p_.ring.d_type, d);
#pragma unroll
    for (int row = 0; row < C::kLaneRows; ++row) {
      const PairTerms e = split_pair(weight_[group][0] * d[row][0], weight_[group][1] * d[row][1]);
      to.large[row / 2][row % 2] = e.term[0];
      to.large[row / 2][2 + row % 2] = e.term[1];
      to.small[row / 2][row % 2] = e.term[2];
    }
  }

  /// The products of a group with four channels of its keys: sum[pair of channels][tile].
  __device__ __forceinline__ static void add_to_step(float (&sum)[2][C::kRowTiles][4],
                                                     const Weighted& d, uint2 keys) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t k = ptx::transpose(pair == 0 ? keys.x : keys.y);
#pragma unroll
      for (int tile = 0; tile < C::kRowTiles; ++tile) {
        const uint32_t small[4] = {d.small[tile][0], d.small[tile][1], 0, 0};
        float more[4] = {};
        ptx::multiply_add(more, small, make_uint2(k, k));
        ptx::multiply_add(more, d.large[tile], make_uint2(k, k));
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[pair][tile][i] += more[i];
      }
    }
  }

  const Params& p_;
  const BlockPlace at_;
  const RingCursors cursors_;
  const int row_;
  Fragment lane_;
  Keys first_keys_;
  RingCorrections<C> first_corrections_;
  LoadedElement g_[kPendingGroups];
  float weight_[kPendingGroups][2];
};

}  // namespace goldenrule::gpu::recurrent
