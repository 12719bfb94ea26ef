// SPDX-License-Identifier: Apache-2.0
//
// The register tile of the state: how it comes from memory and goes back. fp32 in registers,
// rounded once per store. All loads of a tile are issued before the first is used (8 or 16
// vectors of 16 bytes a thread), which is what keeps the memory busy.
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

template <class C>
struct StateTile {
  using State = typename C::State;
  static constexpr int kN = C::kVector;
  using Memory = Vector<State, kN>;

  float s[C::kR][C::kE];

  /// Vectors of a tile, and the place of vector i: its first row and channel elements.
  static constexpr int kVectors = C::kR * C::kE / kN;
  __device__ static constexpr int first_r(int i) { return C::kVK ? i / (C::kE / kN) : 0; }
  __device__ static constexpr int first_e(int i) { return C::kVK ? i % (C::kE / kN) * kN : i; }

  /// Offset of element (row, channel) of a head whose outer stride is `outer`. Exact tiles are
  /// dense: in layout vk all their vectors share one address register and an immediate.
  __device__ static int64_t offset(int row, int channel, int outer) {
    if constexpr (C::kExact && C::kVK) return static_cast<int64_t>(row) * C::kKP + channel;
    const int o = C::kVK ? row : channel;
    const int inner = C::kVK ? channel : row;
    return static_cast<int64_t>(o) * outer + inner;
  }

  /// Elements of the vector at (row, channel) that exist.
  __device__ static int valid(int row, int channel, const Params& p) {
    if constexpr (C::kExact) return kN;
    if (row >= p.V || channel >= p.K) return 0;
    const int rest = C::kVK ? p.K - channel : p.V - row;
    return rest < kN ? rest : kN;
  }

  /// Reads the tile from the head at `head`; what lies outside K x V becomes 0. `row0` is the
  /// first row of this warp.
  __device__ void load(const State* head, int outer, int row0, Lane lane, const Params& p) {
    Memory memory[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int row = row0 + C::row(first_r(i), lane.lv);
      const int channel = C::channel(first_e(i), lane.lk);
      const State* at = head + offset(row, channel, outer);
      const int n = valid(row, channel, p);
      if (C::kExact || (n == kN && p.vector_state)) {
        memory[i] = Memory::load(at);
      } else {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          round_to(memory[i].x[j], 0.f);
          if (j < n) memory[i].x[j] = at[j];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) element(i, j) = to_float(memory[i].x[j]);
    }
  }

  __device__ void store(State* head, int outer, int row0, Lane lane, const Params& p) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int row = row0 + C::row(first_r(i), lane.lv);
      const int channel = C::channel(first_e(i), lane.lk);
      State* at = head + offset(row, channel, outer);
      const int n = valid(row, channel, p);
      Memory memory;
#pragma unroll
      for (int j = 0; j < kN; ++j) round_to(memory.x[j], element(i, j));
      if (C::kExact || (n == kN && p.vector_state)) {
        memory.store(at);
      } else {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          if (j < n) at[j] = memory.x[j];
        }
      }
    }
  }

 private:
  __device__ float& element(int i, int j) {
    return C::kVK ? s[first_r(i)][first_e(i) + j] : s[j][first_e(i)];
  }
  __device__ float element(int i, int j) const {
    return C::kVK ? s[first_r(i)][first_e(i) + j] : s[j][first_e(i)];
  }
};

}  // namespace goldenrule::gpu
