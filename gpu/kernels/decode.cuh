// SPDX-License-Identifier: Apache-2.0
//
// Decode (T = 1) of the production shape, q and k in bf16 or f16 and aligned to four elements. A
// decode step moves 2 K V sizeof(State) bytes a head and does 7 K V flops, under one flop a byte:
// only the memory counts, and the memory is kept busy only if every tile lives for little more than
// its own latency. On an H200 that is 1,500 cycles, and a warp alone on its scheduler issues one
// instruction in three or four and stands still for twenty at a branch: addresses, norms and gates
// outlast the memory if each warp does them all. So:
//
//   - the chain slot, state comes first; the loads of the token are issued while the slot is on its
//     way. The slot comes by an asynchronous copy, because loads to registers are waited for all
//     together, and a slot must not wait for a token that comes from memory;
//   - the warps of a block prepare the token for each other, at once, and meet at one barrier while
//     the state is on its way: k^ and q^ are made by sixteen lanes, each gate by one thread;
//   - what stands behind the state is straight: products, update, store from the registers.
//
// The state passes through slots of shared memory that only their thread touches.
#pragma once

#include <type_traits>

#include "gpu/kernels/prefetch.cuh"
#include "gpu/kernels/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu {

/// What a block holds in shared memory. The token is written once, before the one barrier.
template <class C>
struct DecodeStorage {
  StagedRows<C> rows;
  uint2 start[C::kThreads];  // the index of the slot, each thread its own copy
  alignas(16) float k[C::kKP], q[C::kKP];
  alignas(16) float alpha[C::kChannelGate ? C::kKP : 1];
  float beta;
};

/// The token, which the warps of a block prepare for each other: the first makes k^ and q^, eight
/// lanes each, the last the gate of a head, one in the middle beta; the gate of a channel is made
/// by its thread. After the barrier each lane reads its channels. A source for product and update.
template <class C>
class SharedToken {
 public:
  static constexpr int kGates = C::kChannelGate ? C::kKP / C::kThreads : 1;  // of a thread
  static_assert(!C::kChannelGate || C::kKP % C::kThreads == 0, "all threads have gates");
  using Run = float[C::kRun];

  __device__ __forceinline__ SharedToken(DecodeStorage<C>& storage, Lane lane)
      : storage_(storage),
        lane_(lane),
        makes_qk_(lane.warp == 0),
        makes_beta_(lane.warp == C::kWarps / 2),
        makes_gates_(C::kChannelGate || lane.warp == C::kWarps - 1) {}

  /// Issues every load.
  __device__ __forceinline__ void request(const Params& p, Place at) {
    if (makes_qk_) {
      const bool q = is_q();
      const TokenView view{q ? p.q.data : p.k.data, q ? p.q.row : p.k.row, 0,
                           q ? p.q.head : p.k.head};
      const char* row = token_row(view, at.b, 0, at.h) + C::channel(0, lane_.lk) * 2;
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
    const bool first = lane_.lk == 0 && lane_.lv == 0;
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
    for (int e = 0; e < C::kE; ++e) qk_ = fmaf(q_[e], k_[e], qk_);
    if constexpr (C::kChannelGate) {
      float alpha[C::kE];
      read(alpha, storage_.alpha);
#pragma unroll
      for (int e = 0; e < C::kE; ++e) {
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
      for (int i = 0; i < C::kRun; ++i) x[i] = decay_;
    }
  }

  /// q^ . k^
  __device__ __forceinline__ float qk() const { return sum_over_row<C::kLaneStepK>(qk_); }

  float beta = 0.f;

 private:
  static constexpr int kFours = C::kE / 4;

  __device__ bool is_q() const { return lane_.lv % 2 != 0; }
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
    float* row = (is_q() ? storage_.q : storage_.k) + C::channel(0, lane_.lk);
    if (lane_.lv < 2) {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        *reinterpret_cast<float4*>(row + C::channel(4 * i, 0)) = scaled(x[i], factor);
      }
    }
  }
  __device__ __forceinline__ void read_run(Run& x, const float* row, int run) const {
    read_fours(x, row + C::channel(0, lane_.lk) + C::channel(run, 0));
  }
  __device__ __forceinline__ void read(float (&x)[C::kE], const float* row) const {
#pragma unroll
    for (int run = 0; run < C::kE; run += C::kRun) {
      Run part;
      read_run(part, row, run);
#pragma unroll
      for (int i = 0; i < C::kRun; ++i) x[run + i] = part[i];
    }
  }
  __device__ static void copy(Run& x, const float (&from)[C::kE], int run) {
#pragma unroll
    for (int i = 0; i < C::kRun; ++i) x[i] = from[run + i];
  }

  DecodeStorage<C>& storage_;
  Lane lane_;
  bool makes_qk_, makes_beta_, makes_gates_;
  uint2 qk_bits_[kFours];
  LoadedElement gate_[kGates], dt_bias_[kGates], A_log_, beta_;
  float k_[C::kE], q_[C::kE], decayed_k_[C::kChannelGate ? C::kE : 1];
  float decay_ = 1.f, qk_ = 0.f;
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
  auto& storage = *reinterpret_cast<DecodeStorage<C>*>(shared);
  auto& rows = storage.rows;
  const Lane lane = this_lane<C>();
  const Place at = place_of<C>(p, static_cast<int>(blockIdx.x));
  const int warp_row0 = at.row0 + lane.warp * C::kWarpRows;
  const Owner<C> owner(lane.lk);

  prefetch_first_wave<C>(p, at);
  ptx::wait_for_dependencies();
  ptx::launch_dependents();

  copy_start_slot(p, at.b, storage.start[threadIdx.x]);
  SharedToken<C> token(storage, lane);
  token.request(p, at);
  const char* v_row = token_row(p.v, at.b, 0, at.hv);
  LoadedElement v[C::kChunks];
#pragma unroll
  for (int c = 0; c < C::kChunks; ++c) {
    const int row = warp_row0 + C::row(c * C::kR + owner.row, lane.lv);
    v[c].request(v_row + row * element_size(p.v_type), p.v_type);
  }
  const int64_t start = copied_start_slot(p, at.b, storage.start[threadIdx.x]);
  if (start == kNoSlot) {
    write_zeros<C>(p, at);
    return;
  }
  rows.request(state_head<State>(p.state, start, at.hv), p.state.outer, warp_row0, lane);
  NextWave<C> next;
  next.request(p);
  // The common case, one target which is the slot read from, is known at once.
  const bool in_place = p.disable_state_update == 0 && p.output_state_indices == nullptr &&
                        p.accepted_tokens == nullptr && p.ssm_state_indices == nullptr &&
                        p.intermediate.data == nullptr;
  FinalWrite final{start, 1};
  int64_t scatter = kNoSlot;
  bool kept = true;
  if (!in_place) {
    final = final_write(p, at.b, start);
    if (p.ssm_state_indices != nullptr && p.disable_state_update == 0) {
      scatter = ssm_slot(p, at.b, 0);
    }
    kept = state_is_kept(p, scatter, 0, final);
  }
  State* final_head =
      final.slot != kNoSlot ? state_head<State>(p.final_state, final.slot, at.hv) : nullptr;
  token.finish(p);
  next.prefetch(p);

  char* o_row = token_row(p.o, at.b, 0, at.hv);
  float qk = 0.f;
  for_each_chunk<C::kChunks>([&](auto chunk) {
    constexpr int kChunk = decltype(chunk)::value;
    constexpr int kGroup = Map::group_of(kChunk);
    rows.template wait<kChunk>();
    if (final.after == 0 && Map::ends_group(kChunk)) {
      rows.store(final_head, p.final_state.outer, warp_row0, lane, kGroup);
    }
    StateTile<C> tile;
    rows.unpack(tile, kChunk);
    if constexpr (kChunk == 0) qk = token.qk();
    const float y = product<C>(tile, token, lane.lk);
    const float own = from_k_half<C>(token.beta * (v[kChunk].get(p.v_type) - y), lane);
    if (kept) {
      float d[C::kR];
      all_gather<C::kLaneStepK, C::kR, Owner<C>::kHalf / 2>(d, own, lane.lk);
      update<C>(tile, token, d);
      if (StagedRows<C>::kWholeVectors && in_place) {
        rows.store_tile(tile, kChunk, final_head, p.final_state.outer, warp_row0, lane);
      } else {
        rows.pack(tile, kChunk);
        if constexpr (Map::ends_group(kChunk)) {
          store_state<C>(p, at, scatter, 0, final, [&](State* head, int outer) {
            rows.store(head, outer, warp_row0, lane, kGroup);
          });
        }
      }
    }
    if (owner.half == 1 && owner.first) {
      const int row = warp_row0 + C::row(kChunk * C::kR + owner.row, lane.lv);
      store_element(o_row + row * element_size(p.o_type), p.o_type, fmaf(qk, own, y));
    }
  });
}

}  // namespace goldenrule::gpu
