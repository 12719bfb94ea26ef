// SPDX-License-Identifier: Apache-2.0
//
// The keys of a row tile as tiles of 64, and the part of them that one block of a cluster takes.
// Tiles of the cache and tiles of fresh keys follow each other; those that no row sees are left
// out, so is every key that no row sees: its scores are never asked, and its value is 0 in shared
// memory, because 0 times what is there would be NaN where NaN is there.
#pragma once

#include "gpu/attention/decode_config.cuh"
#include "gpu/ptx/barrier.cuh"

namespace goldenrule::gpu::attention {

/// Tiles first to first + count - 1 of a source, of which key 0 is number `start`.
struct TileRun {
  int32_t start, first, count;
};

__device__ __forceinline__ TileRun tiles_between(int32_t start, int32_t keys, Range seen,
                                                 int32_t tile) {
  const auto from = static_cast<int32_t>(clamped(int64_t{seen.first} - start, 0, keys));
  const auto to = static_cast<int32_t>(clamped(int64_t{seen.last} - start, from, keys));
  const int32_t first = from / tile;
  return {start, first, from == to ? 0 : (to + tile - 1) / tile - first};
}

/// The tiles of one block for one row tile.
template <class C>
class KeyTiles {
 public:
  /// `seen`: by any row; `rank` of p.splits blocks takes a share of consecutive tiles.
  __device__ __forceinline__ KeyTiles(const Params& p, const Request& r, Range seen, int h,
                                      int rank)
      : p_(p),
        r_(r),
        seen_(seen),
        h_(h),
        cached_(tiles_between(0, r.cached, seen, C::kTile)),
        fresh_(tiles_between(r.cached, r.fresh, seen, C::kTile)) {
    const int64_t all = cached_.count + fresh_.count;
    first_ = static_cast<int32_t>(all * rank / p.splits);
    count_ = static_cast<int32_t>(all * (rank + 1) / p.splits) - first_;
  }

  [[nodiscard]] __device__ __forceinline__ int count() const { return count_; }
  /// The number of the first key of tile i of this block.
  [[nodiscard]] __device__ __forceinline__ int32_t start(int i) const {
    const int32_t at = first_ + i;
    if (at < cached_.count) return (cached_.first + at) * C::kTile;
    return fresh_.start + (fresh_.first + at - cached_.count) * C::kTile;
  }

  /// Asks for the page of key `k` of tile i, if it is one of the cache.
  __device__ __forceinline__ uint2 request(int i, int k) const {
    const int32_t t = start(i) + k;
    const bool asks = i < count_ && is_cached(i) && exists(t, true);
    return asks ? request_page(p_, r_, t) : make_uint2(0, 0);
  }
  /// Where that key is; null: nobody sees it.
  __device__ __forceinline__ KeyRow row(int i, int k, uint2 page) const {
    const int32_t t = start(i) + k;
    const bool cached = is_cached(i);
    if (i >= count_ || !exists(t, cached)) return {nullptr, nullptr};
    return cached ? cached_row(p_, t, h_, page) : fresh_row(p_, r_, t, h_);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ bool is_cached(int i) const {
    return first_ + i < cached_.count;
  }
  [[nodiscard]] __device__ __forceinline__ bool exists(int32_t t, bool cached) const {
    const int32_t end = cached ? r_.cached : r_.cached + r_.fresh;
    return t < end && seen_.first <= t && t < seen_.last && !is_padding(p_, r_, t);
  }

  const Params& p_;
  const Request& r_;
  Range seen_;
  int h_;
  TileRun cached_, fresh_;
  int32_t first_, count_;
};

/// Requests, locates and copies the tiles of a block, each one step after the other: while tile i
/// is used, the copies of tile i + 2 begin, tile i + 3 is located and the pages of tile i + 4 are
/// on their way.
template <class C>
class TileSupply {
 public:
  __device__ __forceinline__ TileSupply(const Params& p, const KeyTiles<C>& tiles,
                                        DecodeStorage<C>& storage)
      : p_(p), tiles_(tiles), s_(storage), k_(static_cast<int>(threadIdx.x) % C::kTile) {}

  /// The first tiles. Barriers inside.
  __device__ __forceinline__ void begin() {
    for (int i = static_cast<int>(threadIdx.x) / C::kTile; i < C::kStages;
         i += C::kThreads / C::kTile) {
      locate(i, tiles_.request(i, k_));
    }
    if (locates()) page_ = tiles_.request(C::kStages, k_);
    __syncthreads();
    for (int i = 0; i < C::kStages - 1; ++i) copy(i);
  }

  /// Waits for tile i, and goes on with those behind it. Barriers inside.
  __device__ __forceinline__ void next(int i) {
    ptx::wait_for_copies_but<C::kStages - 2>();
    if constexpr (C::kWarpgroup) ptx::fence_async_readers();
    __syncthreads();  // all have tile i, and nobody reads tile i - 1 any more
    copy(i + C::kStages - 1);
    if (locates()) {
      locate(i + C::kStages, page_);
      page_ = tiles_.request(i + C::kStages + 1, k_);
    }
  }

 private:
  /// Two warps know where the keys of a tile are.
  [[nodiscard]] __device__ __forceinline__ bool locates() const { return threadIdx.x < C::kTile; }

  __device__ __forceinline__ void locate(int i, uint2 page) {
    const KeyRow row = tiles_.row(i, k_, page);
    s_.rows[i % C::kPlaces][k_] = row;
    const uint32_t exists = __ballot_sync(0xffffffffU, row.k != nullptr);
    if (k_ % 32 == 0) s_.exists[i % C::kPlaces][k_ / 32] = exists;
  }

  /// Every call closes a group of copies, also where there is no such tile.
  __device__ __forceinline__ void copy(int i) {
    if (i < tiles_.count()) {
      typename DecodeStorage<C>::Stage& stage = s_.stages[i % C::kStages];
      const int unit = static_cast<int>(threadIdx.x) % C::kUnits;
      const uint32_t k_bytes = unit * 8 < p_.K ? 16 : 0, v_bytes = unit * 8 < p_.V ? 16 : 0;
#pragma unroll
      for (int row = static_cast<int>(threadIdx.x) / C::kUnits; row < C::kTile;
           row += C::kThreads / C::kUnits) {
        const KeyRow from = s_.rows[i % C::kPlaces][row];
        copy_unit_of(&stage.k.units[Tile<C>::place(row, unit)], from.k, unit, k_bytes);
        copy_unit_of(&stage.v.units[Tile<C>::place(row, unit)], from.v, unit, v_bytes);
      }
    }
    ptx::commit_copies();
  }
  __device__ __forceinline__ void copy_unit_of(uint4* to, const char* row, int unit,
                                               uint32_t bytes) const {
    const bool there = row != nullptr && bytes != 0;
    ptx::copy_async_16(to, there ? row + 16 * unit : p_.q.data, there ? bytes : 0);
  }

  const Params& p_;
  const KeyTiles<C>& tiles_;
  DecodeStorage<C>& s_;
  int k_;
  uint2 page_{};
};

}  // namespace goldenrule::gpu::attention
