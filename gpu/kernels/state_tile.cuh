// SPDX-License-Identifier: Apache-2.0
//
// The state of a thread: how it comes from memory, what the arithmetic runs on, and how it goes
// back. All loads are issued before the first is used (16 vectors of 16 bytes a thread), which is
// what keeps the memory busy; fp32 while it is worked on, rounded once per store.
#pragma once

#include "gpu/kernels/config.cuh"
#include "gpu/kernels/elements.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void round_to(float& to, float x) { to = x; }
__device__ __forceinline__ void round_to(__nv_bfloat16& to, float x) {
  to = __float2bfloat16_rn(x);
}

/// N elements as they lie in memory; N * sizeof(State) is 4, 8 or 16.
template <class State, int N>
struct alignas(N * sizeof(State)) Vector {
  State x[N];

  __device__ static Vector load(const State* p) {
    Vector v;
    if constexpr (sizeof(Vector) == 16) {
      *reinterpret_cast<uint4*>(&v) = ptx::load_streaming_16(p);
    } else if constexpr (sizeof(Vector) == 8) {
      *reinterpret_cast<uint2*>(&v) = ptx::load_streaming_8(p);
    } else {
      static_assert(sizeof(Vector) == 4, "a vector is one memory instruction");
      *reinterpret_cast<uint32_t*>(&v) = ptx::load_streaming_4(p);
    }
    return v;
  }
  __device__ void store(State* p) const {
    if constexpr (sizeof(Vector) == 16) {
      ptx::store_streaming_16(p, *reinterpret_cast<const uint4*>(this));
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::store_streaming_8(p, *reinterpret_cast<const uint2*>(this));
    } else {
      ptx::store_streaming_4(p, *reinterpret_cast<const uint32_t*>(this));
    }
  }
};

/// All rows of a thread as they lie in memory: on their way in, and rounded on their way out.
template <class C>
struct PackedRows {
  using State = typename C::State;
  static constexpr int kN = C::kVector;
  static constexpr int kVectors = C::kAllR * C::kE / kN;

  Vector<State, kN> memory[kVectors];

  /// Row and channel elements at which vector i starts.
  __device__ static constexpr int first_r(int i) { return C::kVK ? i / (C::kE / kN) : 0; }
  __device__ static constexpr int first_e(int i) { return C::kVK ? i % (C::kE / kN) * kN : i; }

  /// Row r, channel element e.
  __device__ State& at(int r, int e) {
    return C::kVK ? memory[(r * C::kE + e) / kN].x[e % kN] : memory[e].x[r];
  }
  __device__ State at(int r, int e) const {
    return C::kVK ? memory[(r * C::kE + e) / kN].x[e % kN] : memory[e].x[r];
  }

  /// Where the thread's first vector lies in a head with this outer stride, and how far from it
  /// vector i lies. Exact tiles are dense: in layout vk all vectors share one address and differ by
  /// an immediate.
  __device__ static int64_t origin(int row0, Lane lane, int outer) {
    const int row = row0 + C::row(0, lane.lv);
    const int channel = C::channel(0, lane.lk);
    if constexpr (C::kExact && C::kVK) return static_cast<int64_t>(row) * C::kKP + channel;
    return static_cast<int64_t>(C::kVK ? row : channel) * outer + (C::kVK ? channel : row);
  }
  __device__ static int64_t distance(int i, int outer) {
    const int rows = C::row(first_r(i), 0);
    const int channels = C::channel(first_e(i), 0);
    if constexpr (C::kExact && C::kVK) return rows * C::kKP + channels;
    return static_cast<int64_t>(C::kVK ? rows : channels) * outer + (C::kVK ? channels : rows);
  }

  /// Elements of vector i that exist.
  __device__ static int valid(int i, int row0, Lane lane, const Params& p) {
    if constexpr (C::kExact) return kN;
    const int row = row0 + C::row(first_r(i), lane.lv);
    const int channel = C::channel(first_e(i), lane.lk);
    if (row >= p.V || channel >= p.K) return 0;
    const int rest = C::kVK ? p.K - channel : p.V - row;
    return rest < kN ? rest : kN;
  }

  /// Requests the rows from `row0` on of the head at `head`; what lies outside K x V becomes 0.
  __device__ void load(const State* head, int outer, int row0, Lane lane, const Params& p) {
    const State* first = head + origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const State* from = first + distance(i, outer);
      const int n = valid(i, row0, lane, p);
      if (C::kExact || (n == kN && p.vector_state)) {
        memory[i] = Vector<State, kN>::load(from);
      } else {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          round_to(memory[i].x[j], 0.f);
          if (j < n) memory[i].x[j] = from[j];
        }
      }
    }
  }

  __device__ void store(State* head, int outer, int row0, Lane lane, const Params& p) const {
    State* first = head + origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      store_vector(memory[i], first + distance(i, outer), valid(i, row0, lane, p), p);
    }
  }

  /// The first `n` elements of a vector.
  __device__ static void store_vector(const Vector<State, kN>& x, State* to, int n,
                                      const Params& p) {
    if (C::kExact || (n == kN && p.vector_state)) {
      x.store(to);
    } else {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (j < n) to[j] = x.x[j];
      }
    }
  }
};

/// The register tile that the arithmetic runs on.
template <class C>
struct StateTile {
  float s[C::kR][C::kE];

  __device__ void unpack(const PackedRows<C>& rows, int chunk) {
#pragma unroll
    for (int r = 0; r < C::kR; ++r) {
#pragma unroll
      for (int e = 0; e < C::kE; ++e) s[r][e] = to_float(rows.at(chunk * C::kR + r, e));
    }
  }
  /// The one rounding of a store.
  __device__ void pack(PackedRows<C>& rows, int chunk) const {
#pragma unroll
    for (int r = 0; r < C::kR; ++r) {
#pragma unroll
      for (int e = 0; e < C::kE; ++e) round_to(rows.at(chunk * C::kR + r, e), s[r][e]);
    }
  }

  /// Rounds and stores vector by vector, for a tile that goes on: no copy of it is held in
  /// registers.
  __device__ void store(typename C::State* head, int outer, int row0, Lane lane,
                        const Params& p) const {
    using Rows = PackedRows<C>;
    typename C::State* first = head + Rows::origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < Rows::kVectors; ++i) {
      Vector<typename C::State, Rows::kN> x;
#pragma unroll
      for (int j = 0; j < Rows::kN; ++j) {
        round_to(x.x[j], C::kVK ? s[Rows::first_r(i)][Rows::first_e(i) + j] : s[j][i]);
      }
      Rows::store_vector(x, first + Rows::distance(i, outer), Rows::valid(i, row0, lane, p), p);
    }
  }
};

}  // namespace goldenrule::gpu
