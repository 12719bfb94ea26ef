// SPDX-License-Identifier: Apache-2.0
//
// The one token of a decode step, which the warps of a block prepare for each other (decode.cuh).
#pragma once

#include "gpu/common/gates.cuh"
#include "gpu/common/shared_rows.cuh"
#include "gpu/delta/recurrent/params.hpp"
#include "gpu/delta/recurrent/staged_rows.cuh"
#include "gpu/delta/shared/block.cuh"

namespace goldenrule::gpu::recurrent {

/// What a block holds in shared memory. The token is written once, before the one barrier.
template <class C>
struct DecodeStorage {
  StagedRows<C> rows;
  uint2 start[C::kThreads];  // the index of the slot, each thread its own copy
  alignas(16) float k[C::kPaddedK], q[C::kPaddedK];
  alignas(16) float alpha[C::kChannelGate ? C::kPaddedK : 1];
  float beta;
};

/// The token, which the warps of a block prepare for each other: the first makes k^ and q^, eight
/// lanes each, the last the gate of a head, one in the middle beta; the gate of a channel is made
/// by its thread. After the barrier each lane reads its channels. A source for product and update.
template <class C>
class SharedToken {
 public:
  static constexpr int kGates = C::kChannelGate ? C::kPaddedK / C::kThreads : 1;  // of a thread
  static_assert(!C::kChannelGate || C::kPaddedK % C::kThreads == 0, "all threads have gates");
  using Run = float[C::kRunChannels];

  __device__ __forceinline__ SharedToken(DecodeStorage<C>& storage, ThreadPlace thread)
      : storage_(storage),
        thread_(thread),
        makes_qk_(thread.warp == 0),
        makes_beta_(thread.warp == C::kWarps / 2),
        makes_gates_(C::kChannelGate || thread.warp == C::kWarps - 1) {}

  /// Issues every load.
  __device__ __forceinline__ void request(const Params& p, BlockPlace at) {
    if (makes_qk_) {
      const bool q = is_q();
      const TokenView view{q ? p.q.data : p.k.data, q ? p.q.row : p.k.row, 0,
                           q ? p.q.head : p.k.head};
      const char* row = token_row(view, at.b, 0, at.h) + C::channel(0, thread_.lk) * 2;
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        qk_bits_[i] = *reinterpret_cast<const uint2*>(row + C::channel(4 * i, 0) * 2);
      }
    }
    if (makes_beta_) beta_.request(token_row(p.beta, at.b, 0, at.hv), p.beta_type);
    if (makes_gates_) {
      const int head = p.gate_by_qk_head ? at.h : at.hv;
      if (p.A_log != nullptr) {
        A_log_.request(head_row(p.A_log, p.A_log_stride, head), p.A_log_type);
      }
      const char* gates = token_row(p.gate, at.b, 0, at.hv);
      const char* biases = head_row(p.dt_bias, p.dt_bias_stride, head);
#pragma unroll
      for (int i = 0; i < kGates; ++i) {
        if (p.gate.data != nullptr) {
          gate_[i].request(gates + gate(i) * element_size(p.gate_type), p.gate_type);
        }
        if (p.dt_bias != nullptr) {
          dt_bias_[i].request(biases + gate(i) * element_size(p.dt_bias_type), p.dt_bias_type);
        }
      }
    }
  }

  __device__ __forceinline__ void finish(const Params& p) {
    if (makes_qk_) normalize(p);
    const bool first = thread_.lk == 0 && thread_.lv == 0;
    if (makes_beta_) {
      const float own = beta_of(p, beta_.get(p.beta_type));
      if (first) storage_.beta = own;
    }
    if (makes_gates_) {
      // What is absent was left 0.
      const float rate = expf(A_log_.get(p.A_log_type));
#pragma unroll
      for (int i = 0; i < kGates; ++i) {
        const float own =
            alpha_of(p, gate_[i].get(p.gate_type), rate, dt_bias_[i].get(p.dt_bias_type));
        if (C::kChannelGate || first) storage_.alpha[gate(i)] = own;
      }
    }
    __syncthreads();
    beta = storage_.beta;
    read(k_, storage_.k);
    read(q_, storage_.q);
    qk_ = 0.f;
#pragma unroll
    for (int e = 0; e < C::kThreadChannels; ++e) qk_ = fmaf(q_[e], k_[e], qk_);
    if constexpr (C::kChannelGate) {
      float alpha[C::kThreadChannels];
      read(alpha, storage_.alpha);
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) {
        decayed_k_[e] = k_[e] * alpha[e];
        q_[e] *= alpha[e];
      }
    } else {
      decay_ = storage_.alpha[0];
    }
  }

  __device__ __forceinline__ void k(Run& x, int run) const { copy(x, k_, run); }
  __device__ __forceinline__ void decayed_k(Run& x, int run) const {
    if constexpr (C::kChannelGate) {
      copy(x, decayed_k_, run);
    } else {
      copy(x, k_, run);
    }
  }
  __device__ __forceinline__ void decayed_q(Run& x, int run) const { copy(x, q_, run); }
  __device__ __forceinline__ float decay() const { return decay_; }
  __device__ __forceinline__ void alpha(Run& x, int run) const {
    if constexpr (C::kChannelGate) {
      read_run(x, storage_.alpha, run);
    } else {
#pragma unroll
      for (int i = 0; i < C::kRunChannels; ++i) x[i] = decay_;
    }
  }

  /// q^ . k^
  __device__ __forceinline__ float qk() const { return sum_over_row<C::kLaneStepK>(qk_); }

  float beta = 0.f;

 private:
  static constexpr int kFours = C::kThreadChannels / 4;

  __device__ bool is_q() const { return thread_.lv % 2 != 0; }
  __device__ static int gate(int i) {
    return C::kChannelGate ? i * C::kThreads + static_cast<int>(threadIdx.x) : 0;
  }

  __device__ __forceinline__ void normalize(const Params& p) {
    float4 x[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      x[i] = p.qk_type == Element::kBF16 ? Typed<Element::kBF16>::to_float(qk_bits_[i])
                                         : Typed<Element::kF16>::to_float(qk_bits_[i]);
    }
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kFours; ++i) sum = add_squares(sum, x[i]);
    const float factor =
        norm_factor(p, sum_over_row<C::kLaneStepK>(sum)) * (is_q() ? p.scale : 1.f);
    float* row = (is_q() ? storage_.q : storage_.k) + C::channel(0, thread_.lk);
    if (thread_.lv < 2) {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        *reinterpret_cast<float4*>(row + C::channel(4 * i, 0)) = scaled(x[i], factor);
      }
    }
  }
  __device__ __forceinline__ void read_run(Run& x, const float* row, int run) const {
    read_fours(x, row + C::channel(0, thread_.lk) + C::channel(run, 0));
  }
  __device__ __forceinline__ void read(float (&x)[C::kThreadChannels], const float* row) const {
#pragma unroll
    for (int run = 0; run < C::kThreadChannels; run += C::kRunChannels) {
      Run part;
      read_run(part, row, run);
#pragma unroll
      for (int i = 0; i < C::kRunChannels; ++i) x[run + i] = part[i];
    }
  }
  __device__ static void copy(Run& x, const float (&from)[C::kThreadChannels], int run) {
#pragma unroll
    for (int i = 0; i < C::kRunChannels; ++i) x[i] = from[run + i];
  }

  DecodeStorage<C>& storage_;
  ThreadPlace thread_;
  bool makes_qk_, makes_beta_, makes_gates_;
  uint2 qk_bits_[kFours];
  LoadedElement gate_[kGates], dt_bias_[kGates], A_log_, beta_;
  float k_[C::kThreadChannels], q_[C::kThreadChannels],
      decayed_k_[C::kChannelGate ? C::kThreadChannels : 1];
  float decay_ = 1.f, qk_ = 0.f;
};

}  // namespace goldenrule::gpu::recurrent
