// SPDX-License-Identifier: Apache-2.0
//
// What a group of prefill_kda_prepare works on: which records, how their rows come and how they
// leave. A record leaves in two parts. Keys, queries and the update are done before the products of
// tokens, so they are copied out while A and P are made, and the rows of the next chunk can take
// their place while A is inverted. That a record is there is said while the next A is inverted,
// when nobody has to wait for its last byte any more.
//
// Records are dealt out by place and not by tickets: all are the same work, and a block knows one
// record ahead where its rows are.
#pragma once

#include "gpu/delta/prefill/copy_tiles.cuh"
#include "gpu/delta/prefill/sm90/chunks.cuh"
#include "gpu/delta/prefill/sm90/kda_place.cuh"
#include "gpu/delta/prefill/sm90/tile_maps.hpp"
#include "gpu/ptx/bulk_copy.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu::prefill {

/// The records of a group, counted with their heads: index, index + step, .. below `end`, then
/// rest, rest + rest_step, .. below `count`.
struct KdaRecords {
  int index, step, end;
  int rest, rest_step, count;

  [[nodiscard]] __device__ __forceinline__ bool done() const { return index >= count; }
  __device__ __forceinline__ void settle() {
    if (index < end) return;
    index = rest;
    step = rest_step;
    end = rest = count;
  }
  __device__ __forceinline__ void advance() {
    index += step;
    settle();
  }
};

/// The chunk of the next record, as prefill_kda_places has left it; none: no tokens.
__device__ __forceinline__ ChunkPlace place_of(const Params& p, const KdaRecords& records) {
  ChunkPlace at{};
  if (records.done()) return at;
  at.record = p.by_heads.quotient(records.index);
  at.hv = records.index - at.record * p.HV;
  at.h = qk_head(p, at.hv);
  const RecordHead& head = head_of<kKdaRecordHead>(record_of<kKdaRecordBytes>(p, at.record, at.hv));
  at.first = head.first;
  at.count = head.count;
  return at;
}

/// One thread of the group has rows copied in and records out; the others wait for the rows.
class KdaSupply {
 public:
  __device__ __forceinline__ KdaSupply(const Params& p, const TileMaps& maps,
                                       KdaPreparationStorage& storage, KdaPlace place, bool in_warp)
      : p_(p),
        maps_(maps),
        s_(storage),
        place_(place),
        in_warp_(in_warp),
        supplies_(in_warp && place.lane == 0) {}

  /// k and q where k_in and q_in will be, once those of the record before are copied out. Those of
  /// a short chunk come with load_short_rows.
  __device__ __forceinline__ void begin_rows(const ChunkPlace& at) {
    if (supplies_) begin_boxes(at);
    __syncwarp();
  }
  /// By all threads of the group; behind the end of the chunk are zeros.
  __device__ __forceinline__ void load_short_rows(const ChunkPlace& at) {
    place_.synchronize();  // the record before is copied out
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      copy_tiles<1, kKdaGroupThreads, kKdaChunk>(
          key_tile(s_.chunk, side), token_row(p_.k, 0, at.first, at.h) + side * kTileRowBytes,
          p_.k.token, at.count);
      copy_tiles<1, kKdaGroupThreads, kKdaChunk>(
          query_tile(s_.chunk, side), token_row(p_.q, 0, at.first, at.h) + side * kTileRowBytes,
          p_.q.token, at.count);
    }
  }
  __device__ __forceinline__ void prefetch_rows(const ChunkPlace& at) const {
    if (!supplies_ || at.count != kKdaChunk) return;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      ptx::prefetch_box(&maps_.k, side * kTileColumns, at.h, at.first);
      ptx::prefetch_box(&maps_.q, side * kTileColumns, at.h, at.first);
    }
  }
  __device__ __forceinline__ void finish_rows(const ChunkPlace& at) {
    if (supplies_) ptx::wait_for_bulk_reads();  // T' and P of the record before are copied out
    __syncwarp();
    if (in_warp_ && at.count == kKdaChunk) ptx::arrive(s_.loaded);
    if (at.count == kKdaChunk) {
      ptx::wait_for_phase(s_.loaded, parity_);
      parity_ ^= 1;
    } else {
      ptx::wait_for_copies();
      place_.synchronize();
    }
  }

  /// The part of a record that is there before A and P.
  __device__ __forceinline__ void begin_store(const ChunkPlace& at) const {
    if (!supplies_) return;
    ptx::store_bulk(record_of<kKdaRecordBytes>(p_, at.record, at.hv), &s_.chunk, kOperandBytes);
    ptx::commit_bulk_stores();
  }
  /// T', P and e^G_C.
  __device__ __forceinline__ void finish_store(const ChunkPlace& at) {
    if (!supplies_) return;
    stored_ = record_of<kKdaRecordBytes>(p_, at.record, at.hv);
    ptx::store_bulk(stored_ + kOperandBytes, s_.chunk.corrections,
                    kKdaPreparedBytes - kOperandBytes);
    ptx::commit_bulk_stores();
  }
  /// Says that the record before is there; kBehind stores have begun since.
  template <int kBehind>
  __device__ __forceinline__ void announce_record() {
    if (stored_ != nullptr) {
      ptx::wait_for_bulk_stores_but<kBehind>();
      ptx::store_release(&head_of<kKdaRecordHead>(stored_).ready, 1);
      stored_ = nullptr;
    }
    __syncwarp();
  }

 private:
  static constexpr int kOperandBytes = 2 * kTileBytes + 2 * kKdaTileBytes;

  __device__ __forceinline__ void begin_boxes(const ChunkPlace& at) {
    ptx::wait_for_bulk_reads();
    if (at.count != kKdaChunk) return;
    ptx::arrive_expecting(s_.loaded, 4 * kKdaTileBytes);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      ptx::copy_box(key_tile(s_.chunk, side), &maps_.k, side * kTileColumns, at.h, at.first,
                    s_.loaded);
      ptx::copy_box(query_tile(s_.chunk, side), &maps_.q, side * kTileColumns, at.h, at.first,
                    s_.loaded);
    }
  }

  const Params& p_;
  const TileMaps& maps_;
  KdaPreparationStorage& s_;
  KdaPlace place_;
  bool in_warp_;            ///< of the thread that
  bool supplies_;           ///< has rows and records copied
  uint32_t parity_ = 0;     ///< of the next rows
  char* stored_ = nullptr;  ///< the record that is on its way out, in the thread that sent it
};

}  // namespace goldenrule::gpu::prefill
