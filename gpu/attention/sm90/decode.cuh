// SPDX-License-Identifier: Apache-2.0
//
// Attention on the tensor cores: a cluster of blocks has one tile of rows (decode_config.cuh) of
// one request and key head, and each of its blocks a share of the keys. When all are done, each
// merges some of the rows, of all blocks in the order of their ranks:
//
//     M = max M_b      l = sum 2^(M_b - M) l_b      o = sum 2^(M_b - M) O_b / l
//
// so there is neither a workspace nor a second kernel, and nothing is added in an order that chance
// decides. Tiles beyond those of the grid are taken one after the other.
#pragma once

#include "gpu/attention/sm90/row_tile.cuh"
#include "gpu/attention/sm90/tile_supply.cuh"
#include "gpu/ptx/cluster.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::attention {

/// What any of the rows first to first + rows - 1 sees, and what all of them do. Ranges of later
/// queries end and begin no earlier.
struct SeenByTile {
  Range any, all;
};

__device__ __forceinline__ SeenByTile seen_by_tile(const Params& p, const Request& r, int first,
                                                   int rows) {
  const int begin = p.by_group.quotient(first);
  const int end = min(r.valid - 1, p.by_group.quotient(first + rows - 1));
  if (end < begin) return {{0, 0}, {0, 0}};
  const Range a = visible_to(p, r, begin), b = visible_to(p, r, end);
  return {{a.first, b.last}, {b.first, a.last}};
}

__device__ __forceinline__ RowPlace place_of_row(const Params& p, const Request& r, int h,
                                                 int row) {
  const int i = p.by_group.quotient(row);
  return {.token = r.first_query + i,
          .head = query_head(p, h, row - i * p.group),
          .there = i < r.queries,
          .valid = i < r.valid};
}

/// Merges the rows of this block, of all blocks of the cluster.
template <class C>
__device__ __forceinline__ void merge_rows(const Params& p, const Request& r, const Work& w,
                                           int first, DecodeStorage<C>& s) {
  const int rows = C::kRows >> log2_splits(p);  // of this block, from `own` on
  const int log2_parts = log2_splits(p) + (C::kKeyGroups == 1 ? 0 : 2);
  const int parts = 1 << log2_parts;  // of a row: warps of all blocks
  const int own = w.rank * rows;
  const int thread = static_cast<int>(threadIdx.x);
  // Part k of row i, among the partial rows of its block.
  const auto place = [&](int i, int k) { return k % C::kKeyGroups * C::kRows + own + i; };
  for (int at = thread; at < rows * parts; at += C::kConsumers) {
    const int i = at >> log2_parts, k = at - (i << log2_parts);
    s.merged[at] = ptx::load_cluster_8(
        ptx::address_in_block(ptx::shared_address(&s.sums[place(i, k)]), k / C::kKeyGroups));
  }
  ptx::synchronize_threads<C::kConsumers>(1);
  constexpr int kFours = C::kDim / 4;
  for (int at = thread; at < rows * kFours; at += C::kConsumers) {
    const int i = at / kFours, column = 4 * (at % kFours);
    const RowPlace to = place_of_row(p, r, w.h, first + own + i);
    if (!to.there || column >= p.V) continue;
    float largest = kMinusInfinity;
    for (int k = 0; k < parts; ++k) largest = fmaxf(largest, s.merged[i * parts + k].x);
    const float used = finite_largest(largest);
    float sum = 0.f, o[4] = {};
#pragma unroll 4
    for (int k = 0; k < parts; ++k) {
      const float weight = ptx::exp2_approximate(s.merged[i * parts + k].x - used);
      const float4 part = ptx::load_cluster_16(ptx::address_in_block(
          ptx::shared_address(&s.partials.o[place(i, k) * C::kPartialRow + column]),
          k / C::kKeyGroups));
      sum = fmaf(weight, s.merged[i * parts + k].y, sum);
      o[0] = fmaf(weight, part.x, o[0]);
      o[1] = fmaf(weight, part.y, o[1]);
      o[2] = fmaf(weight, part.z, o[2]);
      o[3] = fmaf(weight, part.w, o[3]);
    }
    const bool empty = !to.valid || sum == 0.f;
#pragma unroll
    for (int e = 0; e < 4; ++e) o[e] = empty ? 0.f : o[e] / sum;
    const int size = element_size(p.o_type);
    char* const row = token_row(p.o, 0, to.token, to.head);
    const bool aligned = (reinterpret_cast<uintptr_t>(row) & 7) == 0;
    store_some<4>(row + column * size, p.o_type, aligned, o);
    if (column == 0) store_lse(p, to, largest, sum);
  }
}

/// Asks for the row of the page table of a request: where it ends is not known yet.
__device__ __forceinline__ void prefetch_table(const Params& p, int n) {
  if (p.table.data == nullptr) return;
  constexpr int kLine = 128;
  const int size = p.table.wide != 0 ? 8 : 4;
  const int64_t at = static_cast<int64_t>(threadIdx.x) * kLine;
  if (at >= int64_t{p.table_width} * size) return;
  ptx::prefetch_l2(static_cast<const char*>(p.table.data) + n * p.table.step * size + at);
}

// Both roles come to the barriers of the cluster, at places of their own: that is one barrier for
// all threads of an explicit cluster, of one block too (table.cpp). Registers move between the
// roles once: where they were to move back for a common place behind the branches, racecheck and
// synccheck did not end.

/// Copies the keys of one row tile after the other.
template <class C>
__device__ __forceinline__ void supply_tiles(const Params& p, const Work& w, const Request& r,
                                             DecodeStorage<C>& s) {
  TileSupply<C> supply(p, s);
  const int64_t all_rows = int64_t{r.queries} * p.group;
#pragma unroll 1
  for (int64_t first = int64_t{w.tile} * C::kRows; first < all_rows;
       first += int64_t{p.tiles} * C::kRows) {
    const SeenByTile seen = seen_by_tile(p, r, static_cast<int>(first), C::kRows);
    supply.copy_all(KeyTiles<C>(p, r, seen.any, w.h, w.rank));
    ptx::synchronize_cluster();
    ptx::synchronize_cluster();  // the tiles are free when others have read the partial results
  }
}

/// Computes one row tile after the other.
template <class C>
__device__ __forceinline__ void take_tiles(const Params& p, const Work& w, const Request& r,
                                           DecodeStorage<C>& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row_group = warp % C::kRowGroups, key_group = warp / C::kRowGroups;
  const int own = key_group * C::kKeys;
  Ring<C::kStages> place;
  const int64_t all_rows = int64_t{r.queries} * p.group;
#pragma unroll 1
  for (int64_t first = int64_t{w.tile} * C::kRows; first < all_rows;
       first += int64_t{p.tiles} * C::kRows) {
    const int row = static_cast<int>(first);
    const SeenByTile seen = seen_by_tile(p, r, row, C::kRows);
    const KeyTiles<C> tiles(p, r, seen.any, w.h, w.rank);
    RowTile<C> rows(p, r, w.h, row + 16 * row_group);
    for (int i = 0; i < tiles.count(); ++i) {
      place.wait_full(s.full);
      const uint32_t(&exist)[C::kTile / 32] = s.exist[place.index];
      const int32_t start = tiles.start(i);
      const bool every = (exist[0] & exist[1]) == 0xffffffffU && seen.all.first <= start &&
                         start + C::kTile <= seen.all.last;
      rows.take(s.stages[place.index], exist, start, own, every);
      ptx::arrive(s.free[place.index]);
      place.advance();
    }
    // Nobody reads a tile any more.
    ptx::synchronize_threads<C::kConsumers>(1);
    rows.store(s, key_group * C::kRows + 16 * row_group);
    ptx::synchronize_cluster();
    merge_rows<C>(p, r, w, row, s);
    ptx::synchronize_cluster();  // others may still read what the next tile writes over
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    attention_decode_kernel(const __grid_constant__ Params p) {
  auto& s = *reinterpret_cast<DecodeStorage<C>*>(attention_shared);
  if (threadIdx.x == 0) initialize_ring(s);
  ptx::wait_for_dependencies();
  const Work w = work_of_block(p);
  prefetch_table(p, w.n);
  const Request r = request_at(p, w.n);
  __syncthreads();  // the ring is there
  if (threadIdx.x >= C::kConsumers) {
    ptx::keep_registers<C::kProducerRegisters>();
    supply_tiles<C>(p, w, r, s);
  } else {
    ptx::take_registers<C::kConsumerRegisters>();
    take_tiles<C>(p, w, r, s);
  }
}

}  // namespace goldenrule::gpu::attention
