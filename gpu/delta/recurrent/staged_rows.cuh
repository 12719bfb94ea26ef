// SPDX-License-Identifier: Apache-2.0
//
// Whole tiles come through shared memory by asynchronous copies, each thread into its own slots, so
// no thread waits for another and no register is held while the state is on its way.
#pragma once

#include "gpu/delta/shared/state_tile.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::recurrent {

/// All rows of a thread as they lie in memory, in slots of its own in shared memory: on their way
/// in, and rounded on their way out. Whole vectors only. 32 slots of a warp lie side by side.
template <class C>
struct StagedRows {
  using State = typename C::State;
  using Map = VectorMap<C>;
  static constexpr int kN = C::kVectorElements;

  Vector<State, kN> slot[Map::kVectors][C::kThreads];

  /// Requests the rows from `row0` on of the head at `head`, one commit a group.
  __device__ __forceinline__ void request(const State* head, int outer, int row0,
                                          ThreadPlace thread) {
    const State* first = head + Map::origin(row0, thread, outer);
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
  static constexpr bool kWholeVectors = C::kVK || kN <= C::kTileRows;

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
  __device__ __forceinline__ void store(State* head, int outer, int row0, ThreadPlace thread,
                                        int group) const {
    State* first = head + Map::origin(row0, thread, outer);
#pragma unroll
    for (int i = 0; i < Map::kPerGroup; ++i) {
      const int at = group * Map::kPerGroup + i;
      const Vector<State, kN> x = slot[at][threadIdx.x];
      x.store(first + Map::distance(at, outer));
    }
  }
  /// Rounds and stores the tile of this chunk past the slots.
  __device__ __forceinline__ static void store_tile(const StateTile<C>& tile, int chunk,
                                                    State* head, int outer, int row0,
                                                    ThreadPlace thread) {
    State* first = head + Map::origin(row0, thread, outer);
    each_part(chunk, [&](int r, int e, int at, int) {
      rounded(tile, r, e).store(first + Map::distance(at, outer));
    });
  }

 private:
  /// Elements of a vector that belong to one chunk.
  static constexpr int kPart = C::kVK || kN < C::kTileRows ? kN : C::kTileRows;
  using Part = Vector<State, kPart>;

  /// Calls f(r, e, at, skip) for the parts of a chunk, which start at row r and channel element e
  /// of its tile, and at element `skip` of slot `at`.
  template <class F>
  __device__ __forceinline__ static void each_part(int chunk, F&& f) {
    constexpr int kParts = C::kTileRows * C::kThreadChannels / kPart;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int r = C::kVK ? i / (C::kThreadChannels / kPart) : i / C::kThreadChannels * kPart;
      const int e = C::kVK ? i % (C::kThreadChannels / kPart) * kPart : i % C::kThreadChannels;
      const int row = chunk * C::kTileRows + r;
      f(r, e, C::kVK ? (row * C::kThreadChannels + e) / kN : row / kN * C::kThreadChannels + e,
        C::kVK ? 0 : row % kN);
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

}  // namespace goldenrule::gpu::recurrent
