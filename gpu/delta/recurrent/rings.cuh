// SPDX-License-Identifier: Apache-2.0
//
// The ring of a row: where its pending tokens lie, and where those of this call go. The cursors are
// device data like slots, so a row with one out of range is padded, and no address is formed of it.
//
// A place is written by this call or read as pending, never both: the tokens of a call go behind
// the pending ones, and count + T <= W. So blocks of one row need not wait for each other.
#pragma once

#include "gpu/common/gates.cuh"
#include "gpu/delta/recurrent/row_slots.cuh"

namespace goldenrule::gpu::recurrent {

inline constexpr int kNoRing = -1;

struct RingCursors {
  int ring;  // kNoRing: the row is padded
  int start, count, places;
  bool flushes;

  /// The place of token i, counted from the oldest pending one; i < places.
  __device__ __forceinline__ int place(int i) const {
    const int at = start + i;
    return at < places ? at : at - places;
  }
};

/// `tokens`: of the row.
__device__ __forceinline__ bool has_cursors_in_range(const Params& p, int64_t start, int64_t count,
                                                     int64_t flush, int tokens) {
  const Rings& r = p.ring;
  return is_within(start, 0, r.places - 1) && is_within(count, 0, r.places - tokens) &&
         is_within(flush, 0, 1);
}

__device__ __forceinline__ RingCursors ring_cursors(const Params& p, int b, int tokens) {
  const Rings& r = p.ring;
  const int64_t ring = r.indices.data != nullptr ? row_value(r.indices, b) : b;
  const int64_t start = row_value(r.start, b);
  const int64_t count = row_value(r.count, b);
  const int64_t flush = r.flush.data != nullptr ? row_value(r.flush, b) : 0;
  if (!is_within(ring, 0, r.rings - 1) || !has_cursors_in_range(p, start, count, flush, tokens)) {
    return {kNoRing, 0, 0, 1, false};
  }
  return {.ring = static_cast<int>(ring),
          .start = static_cast<int>(start),
          .count = static_cast<int>(count),
          .places = r.places,
          .flushes = flush != 0};
}

/// Where the state after the pending tokens goes, or kNoSlot; `start` as in final_write.
__device__ __forceinline__ int64_t flush_slot(const Params& p, int b, int64_t start,
                                              const RingCursors& cursors) {
  return cursors.flushes ? final_write(p, b, start, p.T).slot : kNoSlot;
}

/// Whether a gate of the rings is one number per key channel.
__device__ __forceinline__ bool has_channels(const Params& p) {
  return p.channel_gate != 0 && p.gate_kind != GOLDENRULE_GPU_GATE_NONE;
}

/// Whether this block writes what all tiles of its head have in common, and whether it is the first
/// head of those that read the same keys, and so the one that writes them.
__device__ __forceinline__ bool writes_gates(BlockPlace at) { return at.row0 == 0; }
__device__ __forceinline__ bool writes_keys(const Params& p, BlockPlace at) {
  return at.row0 == 0 && at.hv == (p.tiled_heads ? at.h : at.h * p.group);
}

}  // namespace goldenrule::gpu::recurrent
