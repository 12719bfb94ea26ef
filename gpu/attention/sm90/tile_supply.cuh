// SPDX-License-Identifier: Apache-2.0
//
// The warps of a block that copy keys and values, and do nothing else. Each has half of the keys of
// every tile, or half of the values: a lane locates one row, and the lanes of a row copy it in
// units of 16 bytes. So the warps need nothing of each other. Copies run ahead of the products by
// the ring of tiles; their pages are asked for kAhead tiles earlier. A tile is announced by the
// lanes that have copied it, kBehind tiles later: a copy is a write of its own thread, which alone
// can make it seen by the products of a warpgroup.
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
    const int k = 32 * half_ + lane_;
    uint2 pages[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) pages[i] = tiles.request(i, k);
    for (int first = 0; first < tiles.count() + kBehind; first += kAhead) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int i = first + j;
        if (i < tiles.count()) {
          const char* row =
              tiles.row(values_ ? p_.v_cache : p_.k_cache, values_ ? p_.v : p_.k, i, k, pages[j]);
          pages[j] = tiles.request(i + kAhead, k);
          to_.wait_free(s_.free);
          copy(row);
          to_.advance();
        }
        ptx::commit_copies();
        if (i >= kBehind && i < tiles.count() + kBehind) announce();
      }
    }
  }

 private:
  static constexpr int kAhead = 3;
  /// Copies under way while an earlier tile is waited for; one place of the ring is for that, one
  /// for the products.
  static constexpr int kBehind = C::kStages / 3;
  static constexpr int kRowsAtOnce = 32 / C::kUnits;

  /// Half of the rows of a tile: the one of this lane, and those of the others.
  __device__ __forceinline__ void copy(const char* row) {
    typename DecodeStorage<C>::Stage& stage = s_.stages[to_.index];
    uint4* const to = (values_ ? stage.v : stage.k).units;
    const int unit = lane_ % C::kUnits;
    const bool inside = unit * 8 < (values_ ? p_.V : p_.K);
    const auto bits = reinterpret_cast<uint64_t>(row);
    const int place = Tile<C>::place(32 * half_ + lane_ / C::kUnits, unit);
#pragma unroll
    for (int j = 0; j < 32; j += kRowsAtOnce) {
      const int at = j + lane_ / C::kUnits;
      const uint64_t from = __shfl_sync(0xffffffffU, bits, at);
      const bool there = inside && from != 0;
      ptx::copy_async_16(&to[Tile<C>::below(place, j)],
                         there ? reinterpret_cast<const char*>(from) + 16 * unit : p_.q.data,
                         there ? 16 : 0);
    }
    const uint32_t exist = __ballot_sync(0xffffffffU, row != nullptr);
    if (!values_ && lane_ == 0) s_.exist[to_.index][half_] = exist;
  }

  /// The tile of kBehind groups before has landed.
  __device__ __forceinline__ void announce() {
    ptx::wait_for_copies_but<kBehind>();
    if constexpr (C::kWarpgroup) ptx::fence_async_readers();
    ptx::arrive(s_.full[landed_.index]);
    landed_.advance();
  }

  const Params& p_;
  DecodeStorage<C>& s_;
  int lane_, half_;
  bool values_;
  Ring<C::kStages> to_, landed_;
};

}  // namespace goldenrule::gpu::attention
