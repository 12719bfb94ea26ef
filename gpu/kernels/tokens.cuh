// SPDX-License-Identifier: Apache-2.0
//
// Prepares up to kTC tokens for a block: q^, k^, alpha, beta and its rows of v, as fp32 in shared
// memory. In two halves, because latency is everything here (a decode block lives for a few
// memory latencies): request() issues every load of all tokens at once, before the loads of the
// state queue up, and waits for none; finish() computes when they have landed.
//
// Rows are staged as the bytes they are and converted in place, eight lanes a row, so that 128
// threads do the norms of eight tokens in one pass. The sum of squares has one order for every
// specialization of a K: each lane adds the channels that Config gives it, then lanes 4, 2, 1
// apart.
#pragma once

#include "gpu/kernels/elements.cuh"
#include "gpu/kernels/gates.cuh"
#include "gpu/kernels/relations.cuh"
#include "gpu/kernels/slots.cuh"
#include "gpu/kernels/token_storage.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu {

/// Copies `bytes` by the eight lanes of a row, `lane` 0..7. Rows are short: unrolled loops would
/// only fill the instruction cache.
__device__ __forceinline__ void copy_row(void* shared, const char* from, int bytes, int unit,
                                         int lane) {
  char* to = static_cast<char*>(shared);
  const int step = unit * kRowLanes;
#pragma unroll 1
  for (int i = unit * lane; i < bytes; i += step) {
    if (unit == 16) {
      ptx::copy_async_16(to + i, from + i);
    } else if (unit == 8) {
      ptx::copy_async_8(to + i, from + i);
    } else if (unit == 4) {
      ptx::copy_async_4(to + i, from + i);
    } else {
      *reinterpret_cast<uint16_t*>(to + i) = *reinterpret_cast<const uint16_t*>(from + i);
    }
  }
}

/// Element of a row of v that comes `i`-th to a lane, in fours.
__device__ __forceinline__ int v_element(int i, int lane) { return i * kRowSpan + 4 * lane; }

/// Four elements of a staged row, from `at` on; those from `count` on are 0.
template <class Type>
__device__ __forceinline__ float4 read_row(const float* row, int at, int count) {
  float4 x = Type::read(reinterpret_cast<const char*>(row) + at * Type::kSize);
  if (at >= count) x.x = 0.f;
  if (at + 1 >= count) x.y = 0.f;
  if (at + 2 >= count) x.z = 0.f;
  if (at + 3 >= count) x.w = 0.f;
  return x;
}

/// Element `i` of a staged row.
__device__ __forceinline__ float staged_element(const float* row, Element type, int i) {
  const char* p = reinterpret_cast<const char*>(row) + i * element_size(type);
  if (type == Element::kF32) return *reinterpret_cast<const float*>(p);
  return from_bits(*reinterpret_cast<const uint16_t*>(p), type);
}

__device__ __forceinline__ float add_squares(float sum, float4 x) {
  sum = fmaf(x.x, x.x, sum);
  sum = fmaf(x.y, x.y, sum);
  sum = fmaf(x.z, x.z, sum);
  return fmaf(x.w, x.w, sum);
}

__device__ __forceinline__ float4 scaled(float4 x, float factor) {
  return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}

template <class C>
class Tokens {
 public:
  /// Issues the loads of tokens first..first+count-1.
  __device__ void request(const Params& p, Place at, int first, int count, TokenStorage<C>& to) {
    request_scalars(p, at, first, count);
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
    const bool channels = C::kChannelGate && p.channel_gate != 0 && p.gate.data != nullptr;
    const int jobs = (channels ? 4 : 3) * count;
#pragma unroll 1
    for (int job = static_cast<int>(threadIdx.x) / kRowLanes; job < jobs; job += kGroups) {
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
      copy_row(row, token_row(*view, at.b, first + token, head) + skip * bytes, size * bytes, unit,
               lane);
    }
    if (C::kChannelGate && channels && p.dt_bias != nullptr &&
        static_cast<int>(threadIdx.x) < kRowLanes) {
      copy_row(to.raw_dt_bias, head_row(p.dt_bias, p.dt_bias_stride, gate_head(p, at)),
               p.K * element_size(p.dt_bias_type), p.dt_bias_unit, lane);
    }
    ptx::commit_copies();
  }

  /// Waits for them, but not for the one group of copies committed later, and computes. Barriers
  /// inside; the storage is ready on return.
  __device__ void finish(const Params& p, Place at, int first, int count, TokenStorage<C>& to) {
    ptx::wait_for_copies_but<1>();
    __syncthreads();
    finish_scalars(p, at, first, count, to);
    with_type(p.qk_type, [&](auto type) { convert_qk<decltype(type)>(p, count, to); });
    with_type(p.v_type, [&](auto type) { convert_v<decltype(type)>(p, at, count, to); });
    if constexpr (C::kChannelGate) {
      if (p.channel_gate != 0) {
        finish_channel_gate(p, count, to);
      } else {
        __syncthreads();
        spread_head_gate(p, count, to);
      }
    }
    __syncthreads();
    relate_tokens<C>(p, count, to);
    __syncthreads();
  }

 private:
  static constexpr int kGroups = C::kThreads / kRowLanes;
  static_assert(C::kThreads >= C::kTC, "one thread a token for the scalars");

  __device__ static int gate_head(const Params& p, Place at) {
    return p.gate_by_qk_head ? at.h : at.hv;
  }
  __device__ static int rows(const Params& p, Place at) {
    const int rest = p.V - at.row0;
    return C::kExact || rest > C::kRows ? C::kRows : rest;
  }

  /// Thread t holds the scalars of token t; A_log is held by all.
  __device__ void request_scalars(const Params& p, Place at, int first, int count) {
    const int token = static_cast<int>(threadIdx.x);
    const int head = gate_head(p, at);
    if (p.A_log != nullptr) {
      A_log_ = load_bits(head_row(p.A_log, p.A_log_stride, head), p.A_log_type);
    }
    if (token >= count) return;
    const int t = first + token;
    beta_ = load_bits(token_row(p.beta, at.b, t, at.hv), p.beta_type);
    if (p.channel_gate) return;
    if (p.gate.data != nullptr) {
      gate_ = load_bits(token_row(p.gate, at.b, t, at.hv), p.gate_type);
    }
    if (p.dt_bias != nullptr) {
      dt_bias_ = load_bits(head_row(p.dt_bias, p.dt_bias_stride, head), p.dt_bias_type);
    }
  }

  __device__ float rate(const Params& p) const {
    return p.A_log != nullptr ? expf(from_bits(A_log_, p.A_log_type)) : 1.f;
  }

  __device__ void finish_scalars(const Params& p, Place at, int first, int count,
                                 TokenStorage<C>& to) {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= count) return;
    to.beta[token] = beta_of(p, from_bits(beta_, p.beta_type));
    to.slot[token] = p.ssm_state_indices != nullptr && p.disable_state_update == 0
                         ? ssm_slot(p, at.b, first + token)
                         : kNoSlot;
    if (p.channel_gate) return;
    const float alpha = alpha_of(p, from_bits(gate_, p.gate_type), rate(p),
                                 p.dt_bias != nullptr ? from_bits(dt_bias_, p.dt_bias_type) : 0.f);
    to.alpha[token][0] = alpha;
  }

  /// k^ = norm(k), q^ = scale norm(q).
  template <class Type>
  __device__ static __forceinline__ void convert_qk(const Params& p, int count,
                                                    TokenStorage<C>& to) {
    constexpr int kFours = C::kE / 4;
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
    const int group = static_cast<int>(threadIdx.x) / kRowLanes;
    // Every lane makes every round: the shuffles are of whole warps.
#pragma unroll 1
    for (int base = 0; base < 2 * count; base += kGroups) {
      const int row = base + group;
      const bool active = row < 2 * count;
      const bool is_q = row >= count;
      float* data = is_q ? to.q[active ? row - count : 0] : to.k[row];
      const int valid = C::kExact ? C::kKP : p.K;
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

  template <class Type>
  __device__ static __forceinline__ void convert_v(const Params& p, Place at, int count,
                                                   TokenStorage<C>& to) {
    constexpr int kFours = C::kRows / kRowSpan;
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
    const int group = static_cast<int>(threadIdx.x) / kRowLanes;
#pragma unroll 1
    for (int base = 0; base < count; base += kGroups) {
      // From the other end, so that the warps which had no q or k take v.
      const int row = base + kGroups - 1 - group;
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

  __device__ void finish_channel_gate(const Params& p, int count, TokenStorage<C>& to) const {
    const float r = rate(p);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count * C::kKP; i += C::kThreads) {
      const int token = i / C::kKP;
      const int channel = i % C::kKP;
      float alpha = 0.f;
      if (channel < p.K) {
        const float x = p.gate.data != nullptr
                            ? staged_element(to.decayed_k[token], p.gate_type, channel)
                            : 0.f;
        const float bias =
            p.dt_bias != nullptr ? staged_element(to.raw_dt_bias, p.dt_bias_type, channel) : 0.f;
        alpha = alpha_of(p, x, r, bias);
      }
      to.alpha[token][channel] = alpha;
    }
  }

  /// The general kernels take a gate a head as the same gate on every channel.
  __device__ static void spread_head_gate(const Params& p, int count, TokenStorage<C>& to) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count * C::kKP; i += C::kThreads) {
      const int channel = i % C::kKP;
      if (channel == 0) continue;
      float* alpha = to.alpha[i / C::kKP];
      alpha[channel] = channel < p.K ? alpha[0] : 0.f;
    }
  }

  uint32_t A_log_ = 0, beta_ = 0, gate_ = 0, dt_bias_ = 0;
};

}  // namespace goldenrule::gpu
