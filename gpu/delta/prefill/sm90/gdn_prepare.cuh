// SPDX-License-Identifier: Apache-2.0
//
// The preparation of records. A group of 128 threads works on one unit after the other; a warp of
// its own takes the units, has their rows copied in and the records copied out, and says when they
// are there, so no wait for the memory stands between two units. Three groups of a multiprocessor
// hide each other's latencies.
//
// Units are taken by tickets, and each record says when it is there, so the scan can follow the
// preparation chunk by chunk. Their order is that of the records where the scan runs beside the
// preparation. Where it follows, the records of the second half come first: the scan begins with
// the others, and finds much of them and of their rows in the L2 cache.
//
// Whoever has taken a unit is running and waits for nobody but the copy engine, and no block of the
// scan begins before every block of this kernel has (launch_dependents): a block that waits for a
// record always gets it, however many blocks the device runs at a time.
#pragma once

#include "gpu/delta/prefill/copy_tiles.cuh"
#include "gpu/delta/prefill/sm90/gdn_chunk.cuh"
#include "gpu/delta/prefill/sm90/tile_maps.hpp"
#include "gpu/ptx/bulk_copy.cuh"
#include "gpu/ptx/memory.cuh"

namespace goldenrule::gpu::prefill {

/// The units of a call: those of a record one behind the other.
struct PreparationUnits {
  int count;           ///< of all records
  int first;           ///< the one that the first ticket is for
  int group;           ///< value heads of a query and key head
  Divisor per_record;  ///< units of a record: H times those of a query and key head
  Divisor per_head;    ///< ceil(group / kPair)
  int in_record, in_head;
};

/// The threads that work.
__device__ __forceinline__ void prepare_units(const Params& p, PreparationStorage& storage,
                                              int group) {
  ChunkPreparation chunk(p, storage, 1 + group);
#pragma unroll 1
  for (uint32_t parity = 0;; parity ^= 1) {
    ptx::wait_for_phase(storage.loaded, parity);
    const PreparationUnit& unit = storage.unit;
    const int heads = unit.heads, count = unit.count;
    if (heads == 0) return;
    if (count != kChunk) {
      copy_tiles<2, 128>(storage.rows.k, token_row(p.k, 0, unit.first, unit.h), p.k.token, count);
      copy_tiles<2, 128>(storage.rows.q, token_row(p.q, 0, unit.first, unit.h), p.q.token, count);
      ptx::wait_for_copies();
      ptx::fence_async_readers();
      chunk.synchronize();
    }
    chunk.prepare(heads, count);
    ptx::arrive(storage.done);
  }
}

/// The thread that has units copied in and out for such a group.
class UnitSupply {
 public:
  __device__ __forceinline__ UnitSupply(const Params& p, const TileMaps& maps,
                                        const PreparationUnits& units, PreparationStorage& storage)
      : p_(p), maps_(maps), units_(units), s_(storage) {}

  __device__ __forceinline__ void run() {
    PreparationUnit unit = take();
    begin_load(unit);
    ptx::arrive(s_.loaded);
#pragma unroll 1
    for (uint32_t parity = 0; unit.heads > 0; parity ^= 1) {
      const PreparationUnit next = take();
      prefetch(next);
      ptx::wait_for_phase(s_.done, parity);
      begin_load(next);
      begin_store(unit);
      ptx::wait_for_bulk_reads();
      ptx::arrive(s_.loaded);
      finish_store(unit);
      unit = next;
    }
  }

 private:
  /// The next unit that has tokens; no heads: there is none.
  __device__ __forceinline__ PreparationUnit take() const {
#pragma unroll 1
    while (true) {
      int ticket = atomicAdd(&tickets_of(p_).units, 1);
      PreparationUnit unit{};
      if (ticket >= units_.count) return unit;
      ticket += units_.first - (ticket < units_.count - units_.first ? 0 : units_.count);
      unit.record = units_.per_record.quotient(ticket);
      const int in_record = ticket - unit.record * units_.in_record;
      unit.h = units_.per_head.quotient(in_record);
      const int first = kPair * (in_record - unit.h * units_.in_head);
      unit.heads = min(kPair, units_.group - first);
      const int step = p_.tiled_heads != 0 ? p_.H : 1;
      unit.hv[0] = p_.tiled_heads != 0 ? unit.h + first * p_.H : unit.h * units_.group + first;
      unit.hv[1] = unit.hv[0] + step;
      const RecordHead& head = head_of(record_of(p_, unit.record, unit.hv[0]));
      unit.first = head.first;
      unit.count = head.count;
      if (unit.count > 0) return unit;
    }
  }

  __device__ __forceinline__ void prefetch(const PreparationUnit& unit) const {
    if (unit.count != kChunk) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ptx::prefetch_box(&maps_.k, half * kTileColumns, unit.h, unit.first);
      ptx::prefetch_box(&maps_.q, half * kTileColumns, unit.h, unit.first);
    }
  }
  /// The place of the rows is free; that of the records is once this thread arrives again.
  __device__ __forceinline__ void begin_load(const PreparationUnit& unit) {
    s_.unit = unit;
    const bool whole = unit.count == kChunk;
    constexpr int kInputs = sizeof(ChunkInputs);
    ptx::arrive_expecting(s_.loaded, unit.heads * kInputs + (whole ? 4 * kTileBytes : 0));
    if (unit.heads > 0 && whole) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::copy_box(s_.rows.k + half * kTileBytes, &maps_.k, half * kTileColumns, unit.h,
                      unit.first, s_.loaded);
        ptx::copy_box(s_.rows.q + half * kTileBytes, &maps_.q, half * kTileColumns, unit.h,
                      unit.first, s_.loaded);
      }
    }
#pragma unroll
    for (int e = 0; e < kPair; ++e) {
      if (e >= unit.heads) continue;
      ptx::copy_bulk(&s_.inputs[e], record_of(p_, unit.record, unit.hv[e]) + kRecordInputs, kInputs,
                     s_.loaded);
    }
  }
  /// In the pieces that the scan reads: initcheck knows of a bulk store only where it begins, and
  /// takes a piece that begins elsewhere for one that nobody has written.
  __device__ __forceinline__ void begin_store(const PreparationUnit& unit) {
#pragma unroll
    for (int e = 0; e < kPair; ++e) {
      if (e >= unit.heads) continue;
      char* const record = record_of(p_, unit.record, unit.hv[e]);
#pragma unroll
      for (int s = 0; s < kPanels; ++s) {
        const int from = packed_panel(s);
        ptx::store_bulk(record + from, s_.prepared[e].panels + from, bytes_with_panel(s));
      }
    }
    ptx::commit_bulk_stores();
  }
  /// Says that the records of a unit are there.
  __device__ __forceinline__ void finish_store(const PreparationUnit& unit) {
    ptx::wait_for_bulk_stores();
#pragma unroll
    for (int e = 0; e < kPair; ++e) {
      if (e >= unit.heads) continue;
      ptx::store_release(&head_of(record_of(p_, unit.record, unit.hv[e])).ready, 1);
    }
  }

  const Params& p_;
  const TileMaps& maps_;
  const PreparationUnits& units_;
  PreparationStorage& s_;
};

}  // namespace goldenrule::gpu::prefill
