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

/// The partial results of the rows that this block merges, `own` and on: part k of row i, of
/// `count`, is among the partial rows of its block.
template <class C>
struct Parts {
  DecodeStorage<C>& s;
  int own, count;

  __device__ __forceinline__ int place(int i, int k) const {
    return k % C::kKeyGroups * C::kRows + own + i;
  }
  __device__ __forceinline__ float2 sums(int i, int k) const {
    return ptx::load_cluster_8(
        ptx::address_in_block(ptx::shared_address(&s.sums[place(i, k)]), k / C::kKeyGroups));
  }
  __device__ __forceinline__ float4 output(int i, int k, int column) const {
    const float* const at = &s.partials.o[place(i, k) * C::kPartialRow + column];
    return ptx::load_cluster_16(ptx::address_in_block(ptx::shared_address(at), k / C::kKeyGroups));
  }
  __device__ __forceinline__ float2* merged(int i) const { return s.merged + i * count; }
};

/// The rows of this block, whose largest scores and sums are gathered in `merged`: the weights of
/// the parts in place of them, where each row goes, and its lse. kLanes threads share a row.
/// `first`: of the tile.
template <class C, int kLanes>
__device__ __forceinline__ void merge_sums(const Params& p, const Request& r, const Work& w,
                                           int first, const Parts<C>& parts, int rows) {
  constexpr int kAtOnce = C::kConsumers / kLanes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  for (int i = thread / kLanes; i - thread / kLanes < rows; i += kAtOnce) {  // whole warps stay
    float2* const merged = parts.merged(i);
    const int count = i < rows ? parts.count : 0;
    float largest = kMinusInfinity, sum = 0.f;
    for (int k = lane; k < count; k += kLanes) largest = fmaxf(largest, merged[k].x);
#pragma unroll
    for (int other = 1; other < kLanes; other *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, other));
    }
    const float used = finite_largest(largest);
    for (int k = lane; k < count; k += kLanes) {
      const float weight = ptx::exp2_approximate(merged[k].x - used);
      sum = fmaf(weight, merged[k].y, sum);
      merged[k].x = weight;
    }
#pragma unroll
    for (int other = 1; other < kLanes; other *= 2) {
      sum += __shfl_xor_sync(0xffffffffU, sum, other);
    }
    for (int k = lane; k < count; k += kLanes) merged[k].x /= sum;
    if (lane != 0 || i >= rows) continue;
    const RowPlace to = place_of_row(p, r, w.h, first + parts.own + i);
    parts.s.rows[i] = {to.there ? token_row(p.o, 0, to.token, to.head) : nullptr,
                       !to.valid || sum == 0.f};
    if (to.there) store_lse(p, to, largest, sum);
  }
}

/// Four numbers of kRows rows, `step` rows apart, from kParts parts at a time: loads of all of them
/// are under way together.
template <class C, int kRows, int kParts>
__device__ __forceinline__ void merge_columns(const Params& p, const Parts<C>& parts, int i,
                                              int step, int column) {
  float o[kRows][4] = {};
  for (int first = 0; first < parts.count; first += kParts) {
    float4 part[kParts][kRows];
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) part[k][j] = parts.output(i + j * step, first + k, column);
    }
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const float weight = parts.merged(i + j * step)[first + k].x;
        o[j][0] = fmaf(weight, part[k][j].x, o[j][0]);
        o[j][1] = fmaf(weight, part[k][j].y, o[j][1]);
        o[j][2] = fmaf(weight, part[k][j].z, o[j][2]);
        o[j][3] = fmaf(weight, part[k][j].w, o[j][3]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const MergedRow row = parts.s.rows[i + j * step];
    if (row.to == nullptr || column >= p.V) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) o[j][e] = row.empty != 0 ? 0.f : o[j][e];
    const bool aligned = (reinterpret_cast<uintptr_t>(row.to) & 7) == 0;
    store_some<4>(row.to + column * element_size(p.o_type), p.o_type, aligned, o[j]);
  }
}

/// Merges the rows of this block, of all blocks of the cluster. A thread has four columns of every
/// kStep-th row: what is the same for all columns is made before, once for each row.
template <class C>
__device__ __forceinline__ void merge_rows(const Params& p, const Request& r, const Work& w,
                                           int first, DecodeStorage<C>& s) {
  const int share = p.by_splits.quotient(C::kRows + p.splits - 1);
  const Parts<C> parts{s, w.rank * share, p.splits * C::kKeyGroups};
  const int rows = min(share, C::kRows - parts.own);  // of this block, if any
  const int thread = static_cast<int>(threadIdx.x);
  for (int at = thread; at < rows * parts.count; at += C::kConsumers) {
    const int i = p.by_splits.quotient(at / C::kKeyGroups);
    s.merged[at] = parts.sums(i, at - i * parts.count);
  }
  ptx::synchronize_threads<C::kConsumers>(1);
  if (parts.count < 8) {
    merge_sums<C, 1>(p, r, w, first, parts, rows);
  } else {
    merge_sums<C, 8>(p, r, w, first, parts, rows);
  }
  ptx::synchronize_threads<C::kConsumers>(1);
  constexpr int kFours = C::kDim / 4, kStep = C::kConsumers / kFours;
  const int column = 4 * (thread % kFours);
  const auto merge = [&]<int kRows, int kParts>() {
    for (int i = thread / kFours; i < rows; i += kRows * kStep) {
      merge_columns<C, kRows, kParts>(p, parts, i, kStep, column);
    }
  };
  if constexpr (C::kTeams == 2) {
    merge.template operator()<1, kSplitsAlone>();
  } else {
    // Rows times parts are 64: a thread has kRows rows, or none.
    constexpr int kLoads = kFours / 2;
    static_assert(C::kRows * C::kKeyGroups == kLoads * kStep && kLoads >= 8);
    if constexpr (C::kKeyGroups == 1) {
      if (parts.count == 1) return merge.template operator()<8, 1>();
      if (parts.count == 2) return merge.template operator()<4, 2>();
    }
    if (parts.count == 4) return merge.template operator()<2, 4>();
    if (parts.count == 8) return merge.template operator()<kLoads / 8, 8>();
    merge.template operator()<1, kLoads>();
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
  const int team = warp / C::kWarpsOfTeam, row_group = warp % C::kRowGroups;
  const int key_group = warp % C::kWarpsOfTeam / C::kRowGroups, own = key_group * C::kKeys;
  Ring<C::kStages> place;
  const int64_t all_rows = int64_t{r.queries} * p.group;
#pragma unroll 1
  for (int64_t first = int64_t{w.tile} * C::kRows; first < all_rows;
       first += int64_t{p.tiles} * C::kRows) {
    const int row = static_cast<int>(first);
    const SeenByTile seen = seen_by_tile(p, r, row, C::kRows);
    const KeyTiles<C> tiles(p, r, seen.any, w.h, w.rank);
    RowTile<C> rows(p, r, w.h, row + 16 * row_group);
    bool landed = false;  // the next tile of this team, and products may read it
    for (int i = 0; i < tiles.count(); ++i) {
      if (i % C::kTeams != team) {
        place.advance();
        continue;
      }
      if (!landed) {
        place.wait_full(s.full);
        if constexpr (C::kWarpgroup) ptx::fence_async_readers();
      }
      const uint32_t(&exist)[C::kTile / 32] = s.exist[place.index];
      const int32_t start = tiles.start(i);
      const bool every = (exist[0] & exist[1]) == 0xffffffffU && seen.all.first <= start &&
                         start + C::kTile <= seen.all.last;
      rows.take(s.stages[place.index], exist, start, own, every);
      if constexpr (C::kWarpgroup) {
        Ring<C::kStages> next = place;
        for (int k = 0; k < C::kTeams; ++k) next.advance();
        landed = i + C::kTeams < tiles.count() && __all_sync(0xffffffffU, next.is_full(s.full));
        if (landed) ptx::fence_async_readers();
      }
      rows.finish();
      ptx::arrive(s.free[place.index]);
      place.advance();
    }
    // Nobody reads a tile any more.
    ptx::synchronize_threads<C::kConsumers>(1);
    if constexpr (C::kTeams == 2) {
      if (team == 1) rows.hand_over(s.partials);
      ptx::synchronize_threads<C::kConsumers>(1);
      if (team == 0) rows.add(s.partials);
    }
    if (team == 0) rows.store(s, key_group * C::kRows + 16 * row_group);
    ptx::synchronize_cluster();
    merge_rows<C>(p, r, w, row, s);
    ptx::synchronize_cluster();  // others may still read what the next tile writes over
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
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
