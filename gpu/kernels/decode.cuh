// SPDX-License-Identifier: Apache-2.0
//
// Decode (T = 1) of the production shape, q and k in bf16 or f16 and aligned to four elements. A
// decode step moves 2 K V sizeof(State) bytes a head and does 7 K V flops, under one flop a byte:
// only the memory counts, and the memory is kept busy only if every tile lives for little more than
// its own latency. So each warp is on its own: no barrier, the state through slots of shared memory
// that only their thread touches, k^ and q^ in the registers of the lanes that need them (the
// sectors come from L1 after the first warp), their norms three shuffles away.
//
// Order of issue: slot, q, k, gates; then the state; then the arithmetic on q, k and the gates.
#pragma once

#include <type_traits>

#include "gpu/kernels/prefetch.cuh"
#include "gpu/kernels/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu {

/// The token of a warp in registers. A source for product and update.
template <class C>
class RegisterToken {
 public:
  static constexpr int kFours = C::kE / 4;
  static_assert(!C::kChannelGate || kFours == kLanesV,
                "a lane evaluates the gate of four channels");
  using Run = float[C::kRun];

  __device__ __forceinline__ void request(const Params& p, Place at, Lane lane) {
    const char* k_row = token_row(p.k, at.b, 0, at.h);
    const char* q_row = token_row(p.q, at.b, 0, at.h);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const int skip = C::channel(4 * i, lane.lk) * 2;
      k_bits_[i] = *reinterpret_cast<const uint2*>(k_row + skip);
      q_bits_[i] = *reinterpret_cast<const uint2*>(q_row + skip);
    }
    beta_ = load_bits(token_row(p.beta, at.b, 0, at.hv), p.beta_type);
    const int head = p.gate_by_qk_head ? at.h : at.hv;
    const char* gate_at = token_row(p.gate, at.b, 0, at.hv);
    const char* bias_at = head_row(p.dt_bias, p.dt_bias_stride, head);
    if (p.A_log != nullptr) {
      A_log_ = load_bits(head_row(p.A_log, p.A_log_stride, head), p.A_log_type);
    }
    if constexpr (C::kChannelGate) {
      const int channel = C::channel(4 * lane.lv, lane.lk);
      if (p.gate.data != nullptr) {
        gate_ = request_four(gate_at, channel, p.gate_type, p.gate_unit);
      }
      if (p.dt_bias != nullptr) {
        dt_bias_ = request_four(bias_at, channel, p.dt_bias_type, p.dt_bias_unit);
      }
    } else {
      if (p.gate.data != nullptr) gate_.x = load_bits(gate_at, p.gate_type);
      if (p.dt_bias != nullptr) dt_bias_.x = load_bits(bias_at, p.dt_bias_type);
    }
  }

  __device__ __forceinline__ void finish(const Params& p, Lane lane) {
    if (p.qk_type == Element::kBF16) {
      normalize<Typed<Element::kBF16>>(p, 1.f, k_bits_, k_);
      normalize<Typed<Element::kBF16>>(p, p.scale, q_bits_, q_);
    } else {
      normalize<Typed<Element::kF16>>(p, 1.f, k_bits_, k_);
      normalize<Typed<Element::kF16>>(p, p.scale, q_bits_, q_);
    }
    float sum = 0.f;
#pragma unroll
    for (int e = 0; e < C::kE; ++e) sum = fmaf(q_[e], k_[e], sum);
    qk = sum_over_row<C::kLaneStepK>(sum);
    beta = beta_of(p, from_bits(beta_, p.beta_type));
    const float rate = p.A_log != nullptr ? expf(from_bits(A_log_, p.A_log_type)) : 1.f;
    if constexpr (C::kChannelGate) {
      float4 x = {}, bias = {};
      with_type(p.gate_type, [&](auto type) { x = four_from_bits<decltype(type)>(gate_); });
      if (p.dt_bias != nullptr) {
        with_type(p.dt_bias_type,
                  [&](auto type) { bias = four_from_bits<decltype(type)>(dt_bias_); });
      }
      const float own[4] = {alpha_of(p, x.x, rate, bias.x), alpha_of(p, x.y, rate, bias.y),
                            alpha_of(p, x.z, rate, bias.z), alpha_of(p, x.w, rate, bias.w)};
#pragma unroll
      for (int e = 0; e < C::kE; ++e) {
        const int from = C::lane_of(lane.lk, e / 4);
        alpha_[e] = __shfl_sync(kAllLanes, own[e % 4], from);
        decayed_k_[e] = k_[e] * alpha_[e];
        q_[e] *= alpha_[e];
      }
    } else {
      alpha_[0] = alpha_of(p, from_bits(gate_.x, p.gate_type), rate,
                           p.dt_bias != nullptr ? from_bits(dt_bias_.x, p.dt_bias_type) : 0.f);
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
  __device__ __forceinline__ float decay() const { return C::kChannelGate ? 1.f : alpha_[0]; }
  __device__ __forceinline__ void alpha(Run& x, int run) const {
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) x[i] = alpha_[C::kChannelGate ? run + i : 0];
  }

  float beta = 0.f;
  float qk = 0.f;  // q^ . k^

 private:
  __device__ static uint4 request_four(const char* row, int at, Element type, int unit) {
    const int size = element_size(type);
    return load_some_bits<4>(row + at * size, type, unit >= 4 * size);
  }
  template <class Type>
  __device__ static __forceinline__ void normalize(const Params& p, float scale,
                                                   const uint2 (&bits)[kFours],
                                                   float (&out)[C::kE]) {
    float4 x[kFours];
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      x[i] = Type::to_float(bits[i]);
      sum = add_squares(sum, x[i]);
    }
    const float factor = norm_factor(p, sum_over_row<C::kLaneStepK>(sum)) * scale;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      x[i] = scaled(x[i], factor);
      out[4 * i] = x[i].x;
      out[4 * i + 1] = x[i].y;
      out[4 * i + 2] = x[i].z;
      out[4 * i + 3] = x[i].w;
    }
  }
  __device__ static void copy(Run& x, const float (&from)[C::kE], int run) {
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) x[i] = from[run + i];
  }

  uint2 k_bits_[kFours], q_bits_[kFours];
  uint4 gate_ = {}, dt_bias_ = {};
  uint32_t A_log_ = 0, beta_ = 0;
  float k_[C::kE], q_[C::kE], alpha_[C::kChannelGate ? C::kE : 1];
  float decayed_k_[C::kChannelGate ? C::kE : 1];
};

/// Calls f with 0, 1, .. N - 1, each known to the compiler.
template <int N, int I = 0, class F>
__device__ __forceinline__ void for_each_chunk(F&& f) {
  if constexpr (I < N) {
    f(std::integral_constant<int, I>{});
    for_each_chunk<N, I + 1>(f);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    decode_kernel(const __grid_constant__ Params p) {
  static_assert(C::kExact, "the table gives this kernel whole tiles only");
  using State = typename C::State;
  using Map = VectorMap<C>;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& rows = *reinterpret_cast<StagedRows<C>*>(shared);
  const Lane lane = this_lane<C>();
  const Place at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + lane.warp * C::kWarpRows;
  const Owner<C> owner(lane.lk);

  prefetch_first_wave<C>(p, at);
  ptx::wait_for_dependencies();
  ptx::launch_dependents();

  const uint2 start_bits = request_start_slot(p, at.b);
  RegisterToken<C> token;
  token.request(p, at, lane);
  const char* v_row = token_row(p.v, at.b, 0, at.hv);
  uint32_t v_bits[C::kChunks];
#pragma unroll
  for (int c = 0; c < C::kChunks; ++c) {
    const int row = warp_row0 + C::row(c * C::kR + owner.row, lane.lv);
    v_bits[c] = load_bits(v_row + row * element_size(p.v_type), p.v_type);
  }
  const int64_t start = start_slot(p, at.b, start_bits);
  if (start == kNoSlot) {
    write_zeros<C>(p, at);
    return;
  }
  rows.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane);
  NextWave<C> next;
  next.request(p);
  const FinalWrite final = final_write(p, at.b, start);
  const int64_t scatter = p.ssm_state_indices != nullptr && p.disable_state_update == 0
                              ? ssm_slot(p, at.b, 0)
                              : kNoSlot;
  const bool kept = state_is_kept(p, scatter, 0, final);
  token.finish(p, lane);
  next.prefetch(p);

  char* o_row = token_row(p.o, at.b, 0, at.hv);
  for_each_chunk<C::kChunks>([&](auto chunk) {
    constexpr int kChunk = decltype(chunk)::value;
    constexpr int kGroup = Map::group_of(kChunk);
    rows.template wait<kChunk>();
    if (final.after == 0 && Map::ends_group(kChunk)) {
      rows.store(state_head<State>(p.final_state, final.slot, at.hv), p.final_state.outer,
                 warp_row0, lane, kGroup);
    }
    StateTile<C> tile;
    rows.unpack(tile, kChunk);
    const float y = product<C>(tile, token, lane.lk);
    const float own = from_k_half<C>(token.beta * (from_bits(v_bits[kChunk], p.v_type) - y), lane);
    if (owner.half == 1 && owner.first) {
      const int row = warp_row0 + C::row(kChunk * C::kR + owner.row, lane.lv);
      store_element(o_row + row * element_size(p.o_type), p.o_type, fmaf(token.qk, own, y));
    }
    if (!kept) return;
    float d[C::kR];
    all_gather<C::kLaneStepK, C::kR, Owner<C>::kHalf / 2>(d, own, lane.lk);
    update<C>(tile, token, d);
    rows.pack(tile, kChunk);
    if constexpr (Map::ends_group(kChunk)) {
      store_state<C>(p, at, scatter, 0, final, [&](State* head, int outer) {
        rows.store(head, outer, warp_row0, lane, kGroup);
      });
    }
  });
}

}  // namespace goldenrule::gpu
