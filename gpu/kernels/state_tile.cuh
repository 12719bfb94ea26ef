// SPDX-License-Identifier: Apache-2.0
//
// The state of a thread: how it comes from memory, what the arithmetic runs on, and how it goes
// back. All loads are issued before the first is used, which is what keeps the memory busy; fp32
// while it is worked on, rounded once per store.
//
// Whole tiles come through shared memory by asynchronous copies, each thread into its own slots,
// so no thread waits for another and no register is held while the state is on its way; tails
// come element by element into registers.
#pragma once

#include "gpu/kernels/config.cuh"
#include "gpu/kernels/elements.cuh"
#include "gpu/ptx/async_copy.cuh"
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
  __device__ void request(const State* p) {
    if constexpr (sizeof(Vector) == 16) {
      ptx::copy_async_16(this, p);
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::copy_async_8(this, p);
    } else {
      ptx::copy_async_4(this, p);
    }
  }
  __device__ void store(State* p) const {
    if constexpr (sizeof(Vector) == 16) {
      ptx::store_16(p, *reinterpret_cast<const uint4*>(this));
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::store_8(p, *reinterpret_cast<const uint2*>(this));
    } else {
      ptx::store_4(p, *reinterpret_cast<const uint32_t*>(this));
    }
  }
  __device__ void store_streaming(State* p) const {
    if constexpr (sizeof(Vector) == 16) {
      ptx::store_streaming_16(p, *reinterpret_cast<const uint4*>(this));
    } else if constexpr (sizeof(Vector) == 8) {
      ptx::store_streaming_8(p, *reinterpret_cast<const uint2*>(this));
    } else {
      ptx::store_streaming_4(p, *reinterpret_cast<const uint32_t*>(this));
    }
  }
};

/// Where the vectors of a thread lie, in its rows and in memory.
template <class C>
struct VectorMap {
  using State = typename C::State;
  static constexpr int kN = C::kVector;
  static constexpr int kVectors = C::kAllR * C::kE / kN;
  /// Vectors are requested and stored by groups of whole register tiles.
  static constexpr int kGroups = C::kVK ? C::kChunks : C::kAllR / kN;
  static constexpr int kPerGroup = kVectors / kGroups;
  __device__ static constexpr int group_of(int chunk) {
    return C::kVK ? chunk : chunk * C::kR / kN;
  }
  __device__ static constexpr bool ends_group(int chunk) {
    return chunk + 1 == C::kChunks || group_of(chunk + 1) != group_of(chunk);
  }

  /// Row and channel elements at which vector i starts.
  __device__ static constexpr int first_r(int i) {
    return C::kVK ? i / (C::kE / kN) : i / C::kE * kN;
  }
  __device__ static constexpr int first_e(int i) {
    return C::kVK ? i % (C::kE / kN) * kN : i % C::kE;
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
};

/// The register tile that the arithmetic runs on.
template <class C>
struct StateTile {
  float s[C::kR][C::kE];

  /// Loads the rows from `row0` on of the head at `head`; what lies outside K x V becomes 0.
  __device__ void load(const typename C::State* head, int outer, int row0, Lane lane,
                       const Params& p) {
    using Map = VectorMap<C>;
    using State = typename C::State;
    const State* first = head + Map::origin(row0, lane, outer);
    Vector<State, Map::kN> x[Map::kVectors];
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
      const State* from = first + Map::distance(i, outer);
      const int n = Map::valid(i, row0, lane, p);
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
  __device__ void store(typename C::State* head, int outer, int row0, Lane lane,
                        const Params& p) const {
    using Map = VectorMap<C>;
    using State = typename C::State;
    State* first = head + Map::origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
      Vector<State, Map::kN> x;
#pragma unroll
      for (int j = 0; j < Map::kN; ++j) round_to(x.x[j], element(i, j));
      State* to = first + Map::distance(i, outer);
      const int n = Map::valid(i, row0, lane, p);
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

/// All rows of a thread as they lie in memory, in slots of its own in shared memory: on their way
/// in, and rounded on their way out. Whole vectors only. 32 slots of a warp lie side by side.
template <class C>
struct StagedRows {
  using State = typename C::State;
  using Map = VectorMap<C>;
  static constexpr int kN = C::kVector;

  Vector<State, kN> slot[Map::kVectors][C::kThreads];

  /// Requests the rows from `row0` on of the head at `head`, one commit a group.
  __device__ __forceinline__ void request(const State* head, int outer, int row0, Lane lane) {
    const State* first = head + Map::origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < Map::kVectors; ++i) {
      slot[i][threadIdx.x].request(first + Map::distance(i, outer));
      if ((i + 1) % Map::kPerGroup == 0) ptx::commit_copies();
    }
  }
  /// Returns when the group of this chunk is here.
  template <int Chunk>
  __device__ __forceinline__ static void wait() {
    ptx::wait_for_copies_but<Map::kGroups - 1 - Map::group_of(Chunk)>();
  }

  /// Whether every vector belongs to one chunk.
  static constexpr bool kWholeVectors = C::kVK || kN <= C::kR;

  __device__ __forceinline__ void unpack(StateTile<C>& tile, int chunk) const {
    each_part(chunk, [&](int r, int e, int at, int skip) {
      const auto x = *reinterpret_cast<const Part*>(&slot[at][threadIdx.x].x[skip]);
#pragma unroll
      for (int j = 0; j < kPart; ++j) {
        tile.s[C::kVK ? r : r + j][C::kVK ? e + j : e] = to_float(x.x[j]);
      }
    });
  }
  /// The one rounding of a store.
  __device__ __forceinline__ void pack(const StateTile<C>& tile, int chunk) {
    each_part(chunk, [&](int r, int e, int at, int skip) {
      *reinterpret_cast<Part*>(&slot[at][threadIdx.x].x[skip]) = rounded(tile, r, e);
    });
  }

  /// Stores the group of this chunk.
  __device__ __forceinline__ void store(State* head, int outer, int row0, Lane lane,
                                        int group) const {
    State* first = head + Map::origin(row0, lane, outer);
#pragma unroll
    for (int i = 0; i < Map::kPerGroup; ++i) {
      const int at = group * Map::kPerGroup + i;
      const Vector<State, kN> x = slot[at][threadIdx.x];
      x.store(first + Map::distance(at, outer));
    }
  }
  /// Rounds and stores the tile of this chunk past the slots.
  __device__ __forceinline__ static void store_tile(const StateTile<C>& tile, int chunk,
                                                    State* head, int outer, int row0, Lane lane) {
    State* first = head + Map::origin(row0, lane, outer);
    each_part(chunk, [&](int r, int e, int at, int) {
      rounded(tile, r, e).store(first + Map::distance(at, outer));
    });
  }

 private:
  /// Elements of a vector that belong to one chunk.
  static constexpr int kPart = C::kVK || kN < C::kR ? kN : C::kR;
  using Part = Vector<State, kPart>;

  /// Calls f(r, e, at, skip) for the parts of a chunk, which start at row r and channel element e
  /// of its tile, and at element `skip` of slot `at`.
  template <class F>
  __device__ __forceinline__ static void each_part(int chunk, F&& f) {
    constexpr int kParts = C::kR * C::kE / kPart;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int r = C::kVK ? i / (C::kE / kPart) : i / C::kE * kPart;
      const int e = C::kVK ? i % (C::kE / kPart) * kPart : i % C::kE;
      const int row = chunk * C::kR + r;
      f(r, e, C::kVK ? (row * C::kE + e) / kN : row / kN * C::kE + e, C::kVK ? 0 : row % kN);
    }
  }
  __device__ __forceinline__ static Part rounded(const StateTile<C>& tile, int r, int e) {
    Part x;
#pragma unroll
    for (int j = 0; j < kPart; ++j) {
      round_to(x.x[j], tile.s[C::kVK ? r : r + j][C::kVK ? e + j : e]);
    }
    return x;
  }
};

}  // namespace goldenrule::gpu
