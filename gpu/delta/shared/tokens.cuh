// SPDX-License-Identifier: Apache-2.0
//
// Prepares up to kTokensPerRound tokens for a block: q^, k^, alpha, beta and its rows of v, as fp32
// in shared memory. In two halves, because latency is everything here (a decode block lives for a
// few memory latencies): request() issues every load of all tokens at once, before the loads of the
// state queue up, and waits for none; finish() computes when they have landed.
//
// Rows are staged as the bytes they are and converted in place, eight lanes per row, so that 128
// threads do the norms of eight tokens in one pass. The sum of squares has one order for every
// specialization with the same state format and K: each lane adds the channels that Config gives
// it, then lanes 4, 2, 1 apart.
//
// P: the parameters of a group whose tokens lie at token_row(view, at.b, t, head). A group with
// ssm_state_indices has ssm_slot(p, b, t), too.
#pragma once

#include "gpu/common/gates.cuh"
#include "gpu/common/shared_rows.cuh"
#include "gpu/common/slots.cuh"
#include "gpu/delta/shared/block.cuh"
#include "gpu/delta/shared/token_storage.cuh"
#include "gpu/delta/shared/token_weights.cuh"
#include "gpu/ptx/async_copy.cuh"
#include "gpu/ptx/barrier.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
class Tokens {
 public:
  /// Issues the loads of tokens first..first+count-1.
  template <class P>
  __device__ void request(const P& p, BlockPlace at, int first, int count, TokenStorage<C>& to) {
    request_scalars(p, at, first, count);
    const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
    const bool channels = C::kChannelGate && p.channel_gate != 0 && p.gate.data != nullptr;
    const int jobs = (channels ? 4 : 3) * count;
#pragma unroll 1
    for (int job = static_cast<int>(threadIdx.x) / kSumLanes; job < jobs; job += kGroups) {
      const int kind = (job >= count) + (job >= 2 * count) + (job >= 3 * count);
      const int token = job - kind * count;
      const TokenView* view = &p.k;
      Element type = p.qk_type;
      int head = at.h, skip = 0, size = p.K, unit = p.k_unit;
      float* row = to.k[token];
      if (kind == 1) {
        view = &p.q, unit = p.q_unit, row = to.q[token];
      } else if (kind == 2) {
        view = &p.v, type = p.v_type, head = at.hv, skip = at.row0, size = rows(p, at);
        unit = p.v_unit, row = to.v[token];
      } else if (kind == 3) {
        view = &p.gate, type = p.gate_type, head = at.hv, unit = p.gate_unit;
        row = to.decayed_k[C::kChannelGate ? token : 0];
      }
      const int bytes = element_size(type);
      copy_row(row, token_row(*view, at.b, at.token0 + first + token, head) + skip * bytes,
               size * bytes, unit, lane);
    }
    if (C::kChannelGate && channels && p.dt_bias != nullptr &&
        static_cast<int>(threadIdx.x) < kSumLanes) {
      copy_row(to.raw_dt_bias, head_row(p.dt_bias, p.dt_bias_stride, gate_head(p, at)),
               p.K * element_size(p.dt_bias_type), p.dt_bias_unit, lane);
    }
    ptx::commit_copies();
  }

  /// Waits for them, but not for the one group of copies committed later, and computes. Barriers
  /// inside; the storage is ready on return.
  template <class P>
  __device__ void finish(const P& p, BlockPlace at, int first, int count, TokenStorage<C>& to) {
    convert(p, at, first, count, to);
    weigh_tokens<C>(p, count, to);
    synchronize();
  }

  /// finish() but for what the tokens are to each other.
  template <class P>
  __device__ void convert(const P& p, BlockPlace at, int first, int count, TokenStorage<C>& to) {
    ptx::wait_for_copies_but<1>();
    synchronize();
    finish_scalars(p, at, first, count, to);
    with_type(p.qk_type, [&](auto type) { convert_qk<decltype(type)>(p, count, to); });
    with_type(p.v_type, [&](auto type) { convert_v<decltype(type)>(p, at, count, to); });
    if constexpr (C::kChannelGate) {
      if (p.channel_gate != 0) {
        finish_channel_gate(p, count, to);
      } else {
        synchronize();
        spread_head_gate(p, count, to);
      }
    }
    synchronize();
  }

  /// log alpha of a token in one channel; gates per channel, from the raw gate, which lies where it
  /// did until someone writes there.
  template <class P>
  __device__ float log_alpha(const P& p, int token, int channel,
                             const TokenStorage<C>& from) const {
    const float x =
        p.gate.data != nullptr ? staged_element(from.decayed_k[token], p.gate_type, channel) : 0.f;
    const float bias =
        p.dt_bias != nullptr ? staged_element(from.raw_dt_bias, p.dt_bias_type, channel) : 0.f;
    return log_alpha_of(p, x, rate(p), bias);
  }

 private:
  static constexpr int kGroups = C::kThreads / kSumLanes;
  static_assert(C::kThreads >= C::kTokensPerRound, "one thread a token for the scalars");

  /// Of the threads that prepare: the block, or its first kThreads, which have barrier kBarrier.
  __device__ static __forceinline__ void synchronize() {
    if constexpr (requires { C::kBarrier; }) {
      ptx::synchronize_threads<C::kThreads>(C::kBarrier);
    } else {
      __syncthreads();
    }
  }

  /// The least row of the warp of a group that takes `row`: groups take rows one by one.
  __device__ static int first_of_warp(int row) {
    constexpr int kOfWarp = kWarp / kSumLanes;
    return row / kOfWarp * kOfWarp;
  }

  template <class P>
  __device__ static int gate_head(const P& p, BlockPlace at) {
    return p.gate_by_qk_head ? at.h : at.hv;
  }
  template <class P>
  __device__ static int rows(const P& p, BlockPlace at) {
    const int rest = p.V - at.row0;
    return C::kExact || rest > C::kBlockRows ? C::kBlockRows : rest;
  }

  /// Thread t holds the scalars of token t; A_log is held by all.
  template <class P>
  __device__ void request_scalars(const P& p, BlockPlace at, int first, int count) {
    const int token = static_cast<int>(threadIdx.x);
    const int head = gate_head(p, at);
    if (p.A_log != nullptr) {
      A_log_ = load_bits(head_row(p.A_log, p.A_log_stride, head), p.A_log_type);
    }
    if (token >= count) return;
    const int t = at.token0 + first + token;
    beta_ = load_bits(token_row(p.beta, at.b, t, at.hv), p.beta_type);
    if (p.channel_gate) return;
    if (p.gate.data != nullptr) {
      gate_ = load_bits(token_row(p.gate, at.b, t, at.hv), p.gate_type);
    }
    if (p.dt_bias != nullptr) {
      dt_bias_ = load_bits(head_row(p.dt_bias, p.dt_bias_stride, head), p.dt_bias_type);
    }
  }

  template <class P>
  __device__ float rate(const P& p) const {
    return p.A_log != nullptr ? expf(from_bits(A_log_, p.A_log_type)) : 1.f;
  }

  template <class P>
  __device__ void finish_scalars(const P& p, BlockPlace at, int first, int count,
                                 TokenStorage<C>& to) {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= count) return;
    to.beta[token] = beta_of(p, from_bits(beta_, p.beta_type));
    if constexpr (requires { p.ssm_state_indices; }) {
      to.slot[token] = p.ssm_state_indices != nullptr && p.disable_state_update == 0
                           ? ssm_slot(p, at.b, first + token)
                           : kNoSlot;
    }
    if (p.channel_gate) return;
    const float alpha = alpha_of(p, from_bits(gate_, p.gate_type), rate(p),
                                 p.dt_bias != nullptr ? from_bits(dt_bias_, p.dt_bias_type) : 0.f);
    to.alpha[token][0] = alpha;
  }

  /// k^ = norm(k), q^ = scale norm(q).
  template <class Type, class P>
  __device__ static __forceinline__ void convert_qk(const P& p, int count, TokenStorage<C>& to) {
    constexpr int kFours = C::kThreadChannels / 4;
    const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
    const int group = static_cast<int>(threadIdx.x) / kSumLanes;
    // Every lane makes every round: the shuffles are of whole warps.
#pragma unroll 1
    for (int base = 0; base < 2 * count; base += kGroups) {
      const int row = base + group;
      if (first_of_warp(row) >= 2 * count) break;
      const bool active = row < 2 * count;
      const bool is_q = row >= count;
      float* data = is_q ? to.q[active ? row - count : 0] : to.k[row];
      const int valid = C::kExact ? C::kPaddedK : p.K;
      float4 x[kFours] = {};
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (active) x[i] = read_row<Type>(data, C::channel(4 * i, lane), valid);
        sum = add_squares(sum, x[i]);
      }
      sum = sum_over_row<1>(sum);
      __syncwarp();  // all lanes have read the row before one overwrites it
      const float factor = norm_factor(p, sum) * (is_q ? p.scale : 1.f);
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (active) {
          *reinterpret_cast<float4*>(data + C::channel(4 * i, lane)) = scaled(x[i], factor);
        }
      }
    }
  }

  template <class Type, class P>
  __device__ static __forceinline__ void convert_v(const P& p, BlockPlace at, int count,
                                                   TokenStorage<C>& to) {
    constexpr int kFours = C::kBlockRows / kRowSpan;
    const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
    const int group = static_cast<int>(threadIdx.x) / kSumLanes;
#pragma unroll 1
    for (int base = 0; base < count; base += kGroups) {
      // From the other end, so that the warps which had no q or k take v.
      const int row = base + kGroups - 1 - group;
      if (first_of_warp(row) >= count) continue;
      float4 x[kFours];
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (row < count) x[i] = read_row<Type>(to.v[row], v_element(i, lane), rows(p, at));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (row < count) *reinterpret_cast<float4*>(&to.v[row][v_element(i, lane)]) = x[i];
      }
    }
  }

  template <class P>
  __device__ void finish_channel_gate(const P& p, int count, TokenStorage<C>& to) const {
    static_assert(C::kThreads % C::kPaddedK == 0 || C::kPaddedK % C::kThreads == 0);
    constexpr int kAtOnce = C::kThreads > C::kPaddedK ? C::kThreads / C::kPaddedK : 1;
    constexpr int kTogether = 4;  // gates whose latencies overlap, where there are so many
    const float r = rate(p);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int channel = thread % C::kPaddedK; channel < C::kPaddedK; channel += C::kThreads) {
      const float bias = channel < p.K && p.dt_bias != nullptr
                             ? staged_element(to.raw_dt_bias, p.dt_bias_type, channel)
                             : 0.f;
      int token = thread / C::kPaddedK;
#pragma unroll 1
      for (; token + (kTogether - 1) * kAtOnce < count; token += kTogether * kAtOnce) {
        finish_gates<kTogether, kAtOnce>(p, r, bias, token, channel, to);
      }
#pragma unroll 1
      for (; token < count; token += kAtOnce) {
        finish_gates<1, kAtOnce>(p, r, bias, token, channel, to);
      }
    }
  }

  /// alpha of N tokens, `Step` apart, in one channel.
  template <int N, int Step, class P>
  __device__ static __forceinline__ void finish_gates(const P& p, float rate, float bias, int token,
                                                      int channel, TokenStorage<C>& to) {
    const bool here = channel < p.K;
    float x[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      x[i] = here && p.gate.data != nullptr
                 ? staged_element(to.decayed_k[token + i * Step], p.gate_type, channel)
                 : 0.f;
    }
    with_gate(p, rate, bias, [&](auto&& alpha) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = alpha(x[i]);
    });
#pragma unroll
    for (int i = 0; i < N; ++i) to.alpha[token + i * Step][channel] = here ? x[i] : 0.f;
  }

  /// The general kernels take a gate a head as the same gate on every channel.
  template <class P>
  __device__ static void spread_head_gate(const P& p, int count, TokenStorage<C>& to) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count * C::kPaddedK; i += C::kThreads) {
      const int channel = i % C::kPaddedK;
      if (channel == 0) continue;
      float* alpha = to.alpha[i / C::kPaddedK];
      alpha[channel] = channel < p.K ? alpha[0] : 0.f;
    }
  }

  uint32_t A_log_ = 0, beta_ = 0, gate_ = 0, dt_bias_ = 0;
};

}  // namespace goldenrule::gpu::recurrent
