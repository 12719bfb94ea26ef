// SPDX-License-Identifier: Apache-2.0
//
// The state of a thread: how it comes from memory, what the arithmetic runs on, and how it goes
// back. All loads are issued before the first is used, which is what keeps the memory busy; fp32
// while it is worked on, rounded once per store.
//
// Whole tiles come through shared memory (recurrent/staged_rows.cuh); tails come element by element
// into registers.
//
// P: the parameters of a group, with K, V and vector_state.
#pragma once

#include "gpu/common/vectors.cuh"
#include "gpu/delta/shared/config.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::recurrent {

/// Where the vectors of a thread lie, in its rows and in memory.
template <class C>
struct VectorMap {
  using State = typename C::State;
  static constexpr int kN = C::kVectorElements;
  static constexpr int kVectors = C::kThreadRows * C::kThreadChannels / kN;
  /// Vectors are requested and stored by groups of whole register tiles.
  static constexpr int kGroups = C::kVK ? C::kChunks : C::kThreadRows / kN;
  static constexpr int kPerGroup = kVectors / kGroups;
  __device__ static constexpr int group_of(int chunk) {
    return C::kVK ? chunk : chunk * C::kTileRows / kN;
  }
  __device__ static constexpr bool ends_group(int chunk) {
    return chunk + 1 == C::kChunks || group_of(chunk + 1) != group_of(chunk);
  }

  /// Row and channel elements at which vector i starts.
  __device__ static constexpr int first_r(int i) {
    return C::kVK ? i / (C::kThreadChannels / kN) : i / C::kThreadChannels * kN;
  }
  __device__ static constexpr int first_e(int i) {
    return C::kVK ? i % (C::kThreadChannels / kN) * kN : i % C::kThreadChannels;
  }

  /// Where the thread's first vector lies in a head with this outer stride, and how far from it
  /// vector i lies. Exact tiles are dense: in layout vk all vectors share one address and differ by
  /// an immediate.
  __device__ static int64_t origin(int row0, ThreadPlace thread, int outer) {
    const int row = row0 + C::row(0, thread.lv);
    const int channel = C::channel(0, thread.lk);
    if constexpr (C::kExact && C::kVK) return static_cast<int64_t>(row) * C::kPaddedK + channel;
    return static_cast<int64_t>(C::kVK ? row : channel) * outer + (C::kVK ? channel : row);
  }
  __device__ static int64_t distance(int i, int outer) {
    const int rows = C::row(first_r(i), 0);
    const int channels = C::channel(first_e(i), 0);
    if constexpr (C::kExact && C::kVK) return rows * C::kPaddedK + channels;
    return static_cast<int64_t>(C::kVK ? rows : channels) * outer + (C::kVK ? channels : rows);
  }

  /// Elements of vector i that exist.
  template <class P>
  __device__ static int valid(int i, int row0, ThreadPlace thread, const P& p) {
    if constexpr (C::kExact) return kN;
    const int row = row0 + C::row(first_r(i), thread.lv);
    const int channel = C::channel(first_e(i), thread.lk);
    if (row >= p.V || channel >= p.K) return 0;
    const int rest = C::kVK ? p.K - channel : p.V - row;
    return rest < kN ? rest : kN;
  }
};

/// Of a tile with tails, the offsets and conditions of no element are kept from one access to the
/// next: there are as many as elements.
template <class C>
__device__ __forceinline__ void make_anew(int& outer, int& row0, ThreadPlace& thread) {
  if constexpr (!C::kExact) {
    outer = ptx::hidden_off_90(outer);
    row0 = ptx::hidden_off_90(row0);
    thread.lk = ptx::hidden_off_90(thread.lk);
    thread.lv = ptx::hidden_off_90(thread.lv);
  }
}

/// The register tile that the arithmetic runs on.
template <class C>
struct StateTile {
  float s[C::kTileRows][C::kThreadChannels];

  /// Loads the rows from `row0` on of the head at `head`; what lies outside K x V becomes 0.
  template <class P>
  __device__ void load(const typename C::State* head, int outer, int row0, ThreadPlace thread,
                       const P& p) {
    using Map = VectorMap<C>;
    using State = typename C::State;
    make_anew<C>(outer, row0, thread);
    const State* first = head + Map::origin(row0, thread, outer);
    Vector<State, Map::kN> x[Map::kVectors];
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
      const State* from = first + Map::distance(i, outer);
      const int n = Map::valid(i, row0, thread, p);
      if (n == Map::kN && p.vector_state) {
        x[i] = Vector<State, Map::kN>::load(from);
      } else {
#pragma unroll
        for (int j = 0; j < Map::kN; ++j) {
          round_to(x[i].x[j], 0.f);
          if (j < n) x[i].x[j] = from[j];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < Map::kN; ++j) element(i, j) = to_float(x[i].x[j]);
    }
  }

  /// Rounds and stores vector by vector: no copy of the tile is held in registers.
  template <class P>
  __device__ void store(typename C::State* head, int outer, int row0, ThreadPlace thread,
                        const P& p) const {
    using Map = VectorMap<C>;
    using State = typename C::State;
    make_anew<C>(outer, row0, thread);
    State* first = head + Map::origin(row0, thread, outer);
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
      Vector<State, Map::kN> x;
#pragma unroll
      for (int j = 0; j < Map::kN; ++j) round_to(x.x[j], element(i, j));
      State* to = first + Map::distance(i, outer);
      const int n = Map::valid(i, row0, thread, p);
      if (C::kExact || (n == Map::kN && p.vector_state)) {
        x.store(to);
      } else {
#pragma unroll
        for (int j = 0; j < Map::kN; ++j) {
          if (j < n) to[j] = x.x[j];
        }
      }
    }
  }

 private:
  /// Element j of vector i, where the tile is all of the thread's rows.
  __device__ __forceinline__ float& element(int i, int j) {
    return s[VectorMap<C>::first_r(i) + (C::kVK ? 0 : j)]
            [VectorMap<C>::first_e(i) + (C::kVK ? j : 0)];
  }
  __device__ __forceinline__ float element(int i, int j) const {
    return s[VectorMap<C>::first_r(i) + (C::kVK ? 0 : j)]
            [VectorMap<C>::first_e(i) + (C::kVK ? j : 0)];
  }
};

}  // namespace goldenrule::gpu::recurrent
