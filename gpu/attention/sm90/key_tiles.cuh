// SPDX-License-Identifier: Apache-2.0
//
// The keys of a row tile as tiles of 64, and the part of them that one block of a cluster takes.
// Tiles of the cache and tiles of fresh keys follow each other; those that no row sees are left
// out, so is every key that no row sees: its scores are never asked, and its value is 0 in shared
// memory, because 0 times what is there would be NaN where NaN is there.
#pragma once

#include "gpu/attention/block.cuh"
#include "gpu/attention/sm90/decode_config.cuh"

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
    // 16 times as many tiles are less than 2^31.
    static_assert(int64_t{GOLDENRULE_GPU_MAX_KEYS} / C::kTile + 2 <= (int32_t{1} << 27) - 1);
    const int32_t all = cached_.count + fresh_.count;
    first_ = p.by_splits.quotient(all * rank);
    count_ = p.by_splits.quotient(all * (rank + 1)) - first_;
  }

  [[nodiscard]] __device__ __forceinline__ int count() const { return count_; }
  /// The number of the first key of tile i of this block.
  [[nodiscard]] __device__ __forceinline__ int32_t start(int i) const {
    const int32_t at = first_ + i;
    if (at < cached_.count) return (cached_.first + at) * C::kTile;
    return fresh_.start + (fresh_.first + at - cached_.count) * C::kTile;
  }

  [[nodiscard]] __device__ __forceinline__ bool is_cached(int i) const {
    return first_ + i < cached_.count;
  }
  /// Whether somebody sees key `k` of tile i.
  [[nodiscard]] __device__ __forceinline__ bool exists(int i, int k) const {
    const int32_t start_of_tile = start(i), end = is_cached(i) ? r_.cached : r_.cached + r_.fresh;
    const int32_t last = start_of_tile + C::kTile;
    const bool all = seen_.first <= start_of_tile && last <= min(end, seen_.last) &&
                     (last <= r_.padding.first || r_.padding.last <= start_of_tile);
    if (all) return true;  // of the block: of most tiles
    const int32_t t = start_of_tile + k;
    return t < end && seen_.first <= t && t < seen_.last && !is_padding(p_, r_, t);
  }
  /// Asks for the page of key `k` of tile i, if it is one of the cache.
  __device__ __forceinline__ uint2 request(int i, int k) const {
    const int32_t t = start(i) + k;
    return request_page(p_, r_, t, i < count_ && is_cached(i) && t < r_.cached);
  }
  /// Where that key or its value is, of those that exist; null: there is none.
  __device__ __forceinline__ const char* row(const PageView& cache, const TokenView& fresh, int i,
                                             int k, uint2 page) const {
    const int32_t t = start(i) + k;
    return is_cached(i) ? cached_row(p_, cache, t, h_, page) : fresh_row(r_, fresh, t, h_);
  }

 private:
  const Params& p_;
  const Request& r_;
  Range seen_;
  int h_;
  TileRun cached_, fresh_;
  int32_t first_, count_;
};

}  // namespace goldenrule::gpu::attention
