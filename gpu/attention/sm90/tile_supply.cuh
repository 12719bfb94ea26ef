// SPDX-License-Identifier: Apache-2.0
//
// The warps of a block that copy keys and values, and do nothing else. Each has half of the keys of
// every tile, or half of the values, so the warps need nothing of each other. Copies run ahead of
// the products by the ring of tiles. No thread waits for its copies: they arrive at the barrier of
// the tile by themselves. Those who compute make them seen by the products of a warpgroup
// (row_tile.cuh): a fence here would wait for the copies of later tiles as well.
//
// How many instructions a warp needs for a tile bounds a lone block, so there are two forms. Where
// a half tile lies on one page, its rows follow each other at one distance: a lane then asks for
// the page of one tile, 32 tiles at a time, and addresses are counted up. Otherwise a lane asks for
// the page of one row, kAhead tiles before, and the lanes that copy a row are told where it is.
#pragma once

#include "gpu/attention/sm90/key_tiles.cuh"
#include "gpu/common/ring.cuh"
#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::attention {

template <class C>
class TileSupply {
 public:
  __device__ __forceinline__ TileSupply(const Params& p, DecodeStorage<C>& storage)
      : p_(p), s_(storage), lane_(static_cast<int>(threadIdx.x) % 32) {
    const int warp = static_cast<int>(threadIdx.x - C::kConsumers) / 32;
    half_ = warp / 2;
    values_ = warp % 2 != 0;
  }

  __device__ __forceinline__ void copy_all(const KeyTiles<C>& tiles) {
    if (p_.paged == 0 || p_.page_size % kHalf == 0) {
      copy_runs(tiles);
    } else {
      copy_rows(tiles);
    }
  }

 private:
  static constexpr int kHalf = C::kTile / 2;
  static_assert(kHalf == 32, "a lane for each row");
  static constexpr int kAhead = 3;
  static constexpr int kRowsAtOnce = 32 / C::kUnits;

  [[nodiscard]] __device__ __forceinline__ const PageView& cache() const {
    return values_ ? p_.v_cache : p_.k_cache;
  }
  [[nodiscard]] __device__ __forceinline__ const TokenView& fresh() const {
    return values_ ? p_.v : p_.k;
  }
  [[nodiscard]] __device__ __forceinline__ int extent() const { return values_ ? p_.V : p_.K; }

  __device__ __forceinline__ void copy_runs(const KeyTiles<C>& tiles) {
    const int first = kHalf * half_;
    uint2 pages = tiles.request(lane_, first), next = tiles.request(32 + lane_, first);
#pragma unroll 1
    for (int i = 0; i < tiles.count(); ++i) {
      if (i > 0 && i % 32 == 0) {
        pages = next;
        next = tiles.request(i + 32 + lane_, first);
      }
      const uint2 page = {__shfl_sync(kAllLanes, pages.x, i % 32),
                          __shfl_sync(kAllLanes, pages.y, i % 32)};
      const char* const row = tiles.row(cache(), fresh(), i, first, page);
      const int64_t distance = tiles.is_cached(i) ? int64_t{cache().slot} : fresh().token;
      const bool exists = row != nullptr && tiles.exists(i, first + lane_);
      const uint32_t exist = __ballot_sync(kAllLanes, exists);
      copy_run(row, distance, exist);
      announce(exist);
    }
  }

  __device__ __forceinline__ void copy_rows(const KeyTiles<C>& tiles) {
    const int k = kHalf * half_ + lane_;
    uint2 pages[kAhead] = {};
    // One place asks: of requests in front of the loop ptxas 13.0 lost the conditions.
#pragma unroll 1
    for (int i = -kAhead; i < tiles.count(); ++i) {
      const uint2 page = pages[0];
#pragma unroll
      for (int j = 0; j + 1 < kAhead; ++j) pages[j] = pages[j + 1];
      pages[kAhead - 1] = tiles.request(i + kAhead, k);
      if (i < 0) continue;
      const char* row = tiles.row(cache(), fresh(), i, k, page);
      if (!tiles.exists(i, k)) row = nullptr;
      copy_row_of_lane(row);
      announce(__ballot_sync(kAllLanes, row != nullptr));
    }
  }

  /// The tile that is copied to, when everybody has read what was there.
  [[nodiscard]] __device__ __forceinline__ uint4* target() const {
    to_.wait_free(s_.free);
    typename DecodeStorage<C>::Stage& stage = s_.stages[to_.index];
    return (values_ ? stage.v : stage.k).units;
  }
  /// Where this lane writes first, of the rows lane / kUnits + j.
  [[nodiscard]] __device__ __forceinline__ int first_place() const {
    return Tile<C>::place(kHalf * half_ + lane_ / C::kUnits, lane_ % C::kUnits);
  }

  /// Rows that follow each other; `exist`: those that are copied, the others become 0.
  __device__ __forceinline__ void copy_run(const char* row, int64_t distance, uint32_t exist) {
    uint4* const to = target();
    const int place = first_place(), unit = lane_ % C::kUnits;
    // Rows that do not exist may lie outside of everything: their places are no pointers.
    uint64_t from = reinterpret_cast<uint64_t>(row) +
                    static_cast<uint64_t>(lane_ / C::kUnits * distance + 16 * unit);
    const auto step = static_cast<uint64_t>(kRowsAtOnce * distance);
    if (exist == kAllLanes && extent() == C::kDim) {
#pragma unroll
      for (int j = 0; j < kHalf; j += kRowsAtOnce) {
        ptx::copy_async_16(&to[Tile<C>::below(place, j)], reinterpret_cast<const char*>(from));
        from += step;
      }
      return;
    }
    const uint32_t own = unit * 8 < extent() ? exist >> lane_ / C::kUnits : 0;
#pragma unroll
    for (int j = 0; j < kHalf; j += kRowsAtOnce) {
      const bool there = (own >> j & 1U) != 0;
      ptx::copy_async_16(&to[Tile<C>::below(place, j)],
                         there ? reinterpret_cast<const char*>(from) : p_.q.data, there ? 16 : 0);
      from += step;
    }
  }

  /// The row of this lane and those of the others; null: it becomes 0.
  __device__ __forceinline__ void copy_row_of_lane(const char* row) {
    uint4* const to = target();
    const int place = first_place(), unit = lane_ % C::kUnits;
    const bool inside = unit * 8 < extent();
    const auto bits = reinterpret_cast<uint64_t>(row);
#pragma unroll
    for (int j = 0; j < kHalf; j += kRowsAtOnce) {
      const uint64_t from = __shfl_sync(kAllLanes, bits, j + lane_ / C::kUnits);
      const bool there = inside && from != 0;
      ptx::copy_async_16(&to[Tile<C>::below(place, j)],
                         there ? reinterpret_cast<const char*>(from) + 16 * unit : p_.q.data,
                         there ? 16 : 0);
    }
  }

  /// The tile is full when the copies have landed.
  __device__ __forceinline__ void announce(uint32_t exist) {
    if (!values_ && lane_ == 0) {
      s_.exist[to_.index][half_] = exist;
      ptx::arrive(s_.full[to_.index]);
    }
    ptx::arrive_after_copies(s_.full[to_.index]);
    to_.advance();
  }

  static constexpr uint32_t kAllLanes = 0xffffffffU;

  const Params& p_;
  DecodeStorage<C>& s_;
  int lane_, half_;
  bool values_;
  Ring<C::kStages> to_;
};

}  // namespace goldenrule::gpu::attention
