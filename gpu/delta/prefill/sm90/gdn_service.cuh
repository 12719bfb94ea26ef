// SPDX-License-Identifier: Apache-2.0
//
// The warps that feed and empty a block of the scan. One has K, Q, V and the record of each chunk
// copied to shared memory in the order of the tiles; rows behind the end of a chunk are written as
// zeros, so nothing of another sequence enters, whatever lies there. Another takes o from shared
// memory to its place in whole rows of a tile, which a scan could only write in quarters.
#pragma once

#include "gpu/common/ring.cuh"
#include "gpu/delta/prefill/copy_tiles.cuh"
#include "gpu/delta/prefill/sm90/chunks.cuh"
#include "gpu/delta/prefill/sm90/gdn_storage.cuh"
#include "gpu/delta/prefill/sm90/tile_maps.hpp"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/ptx/bulk_copy.cuh"
#include "gpu/ptx/grid_dependency.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::prefill {

/// Hidden, so that addresses made from it are not computed before a loop and kept in local memory.
__device__ __forceinline__ int hidden_lane() {
  return ptx::hidden(static_cast<int>(threadIdx.x)) % 32;
}

/// Copies K, Q, V and the record of each chunk: by the copy engine where the chunk is whole, else
/// row by row, so that nothing of another sequence enters.
template <class C>
class Copier {
 public:
  __device__ __forceinline__ Copier(const Params& p, const TileMaps& maps, ScanStorage<C>& storage)
      : p_(p), maps_(maps), storage_(storage) {}

  __device__ __forceinline__ void run() {
    Ring<C::kStages> stage;
#pragma unroll 1
    for (ChunkCursor<C> cursor(p_); cursor.valid(); cursor.advance(), stage.advance()) {
      const ChunkPlace at = cursor.place();
      stage.wait_free(storage_.stage_free);
      if (at.piece != nullptr) {
        begin_piece(at, stage);
        continue;
      }
      if (at.count == C::kTokens) {
        if (threadIdx.x == 0) begin_boxes(at, stage.index);
      } else {
        copy_rows(at, stage.index);
      }
      begin_record(at, stage, at.count == C::kTokens ? kBytes : 0);
      __syncwarp();
    }
  }

 private:
  static constexpr int kValueBytes = kBytesOfTile<C::kTokens>;
  static constexpr int kBytes = (C::kChannelGates ? 0 : 4 * kTileBytes) + C::kScans * kValueBytes;

  __device__ __forceinline__ void begin_boxes(const ChunkPlace& at, int stage) {
    uint64_t& full = storage_.stage_full[stage];
    if constexpr (!C::kChannelGates) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::copy_box(storage_.k[stage] + half * kTileBytes, &maps_.k, half * kTileColumns, at.h,
                      at.first, full);
        ptx::copy_box(storage_.q[stage] + half * kTileBytes, &maps_.q, half * kTileColumns, at.h,
                      at.first, full);
      }
    }
#pragma unroll
    for (int i = 0; i < C::kScans; ++i) {
      ptx::copy_box(storage_.v[stage] + i * kValueBytes, &maps_.v,
                    at.first_value + i * kTileColumns, at.hv, at.first, full);
    }
  }
  __device__ __forceinline__ void copy_rows(const ChunkPlace& at, int stage) {
    if constexpr (!C::kChannelGates) {
      copy_tiles<2, 32>(storage_.k[stage], token_row(p_.k, 0, at.first, at.h), p_.k.token,
                        at.count);
      copy_tiles<2, 32>(storage_.q[stage], token_row(p_.q, 0, at.first, at.h), p_.q.token,
                        at.count);
    }
    copy_tiles<C::kScans, 32, C::kTokens>(storage_.v[stage],
                                          token_row(p_.v, 0, at.first, at.hv) + at.first_value * 2,
                                          p_.v.token, at.count);
    ptx::wait_for_copies();
    ptx::fence_async_readers();
  }
  /// Every lane arrives, for what it has copied; `bytes` are on their way already.
  __device__ __forceinline__ void begin_record(const ChunkPlace& at, const Ring<C::kStages>& stage,
                                               int bytes) {
    uint64_t& full = storage_.stage_full[stage.index];
    if (threadIdx.x != 0) {
      ptx::arrive(full);
      return;
    }
    stage.wait_full(storage_.record_ready);
    ptx::arrive_expecting(full, bytes + C::kPreparedSize);
    copy_record(storage_.prepared[stage.index], record_of<C::kRecordSize>(p_, at.record, at.hv),
                full);
  }
  __device__ __forceinline__ static void copy_record(typename C::Prepared& to, const char* record,
                                                     uint64_t& full) {
    if constexpr (C::kChannelGates) {
      ptx::copy_bulk(&to, record, C::kPreparedSize, full);
    } else {
#pragma unroll
      for (int s = 0; s < kPanels; ++s) {
        ptx::copy_bulk(to.panels + spread_panel(s), record + packed_panel(s), bytes_with_panel(s),
                       full);
      }
    }
  }

  __device__ __forceinline__ void begin_piece(const ChunkPlace& at, const Ring<C::kStages>& stage) {
    constexpr int kTerm = kPieceTermBytes<C::kTokens>;
    uint64_t& full = storage_.stage_full[stage.index];
    if (threadIdx.x != 0) {
      ptx::arrive(full);
    } else {
      stage.wait_full(storage_.record_ready);
      ptx::wait_for_dependencies();  // maps are complete
      ptx::fence_async_global_readers();
      ptx::arrive_expecting(full, 2 * kTerm);
      ptx::copy_bulk(storage_.map_terms(stage.index, false), at.piece, kTerm, full);
      ptx::copy_bulk(storage_.map_terms(stage.index, true), at.piece + kTerm, kTerm, full);
    }
    __syncwarp();
  }

  const Params& p_;
  const TileMaps& maps_;
  ScanStorage<C>& storage_;
};

/// Watches for the records of the chunks to come: a flag takes a way to the L2 cache and back, so
/// it is not the copier that waits for it.
template <class C>
__device__ __forceinline__ void watch_records(const Params& p, ScanStorage<C>& storage) {
  Ring<C::kStages> stage;
#pragma unroll 1
  for (ChunkCursor<C> cursor(p); cursor.valid(); cursor.advance()) {
    const ChunkPlace at = cursor.place();
    stage.wait_free(storage.stage_full);  // the chunk before in this stage has come
    if (at.piece == nullptr) {
      const RecordHead& head = head_of<C::kHead>(record_of<C::kRecordSize>(p, at.record, at.hv));
      while (ptx::load_acquire(&head.ready) == 0) {
      }
    }
    ptx::fence_async_global_readers();
    ptx::arrive(storage.record_ready[stage.index]);
    stage.advance();
  }
}

/// Writes tiles of o until each scan has said that there are no more: by the copy engine where the
/// chunk is whole.
template <class C>
__device__ __forceinline__ void write_outputs(const Params& p, const TileMaps& maps,
                                              ScanStorage<C>& storage) {
  uint32_t parity = 0;
#pragma unroll 1
  for (int ended = 0; ended < C::kScans; parity ^= 1) {
#pragma unroll 1
    for (int i = 0; i < C::kScans; ++i) {
      ptx::wait_for_phase(storage.output_full[i], parity);
      const OutputPlace to = storage.outputs[i];
      if (to.count == kNoMoreChunks) {
        ++ended;
        continue;
      }
      const int lane = hidden_lane();
      if (to.count == C::kTokens) {
        if (lane == 0) {
          ptx::store_box(&maps.o, to.first_value, to.hv, to.first, storage.o[i]);
          ptx::commit_bulk_stores();
          ptx::wait_for_bulk_reads();
        }
      } else {
        const int piece = lane % 8;
#pragma unroll 4
        for (int row = lane / 8; row < to.count; row += 4) {
          char* at = token_row(p.o, 0, to.first + row, to.hv) + to.first_value * 2 + piece * 16;
          ptx::store_16(at,
                        *reinterpret_cast<const uint4*>(storage.o[i] + piece_offset(row, piece)));
        }
      }
      ptx::arrive(storage.output_free[i]);
    }
  }
}

/// The warps of the first group; one has nothing to do.
template <class C>
__device__ __forceinline__ void serve(const Params& p, const TileMaps& maps,
                                      ScanStorage<C>& storage) {
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp == 0) Copier<C>(p, maps, storage).run();
  if (warp == 1) write_outputs(p, maps, storage);
  if (warp == 2 && threadIdx.x % 32 == 0) watch_records(p, storage);
}

}  // namespace goldenrule::gpu::prefill
