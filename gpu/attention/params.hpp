// SPDX-License-Identifier: Apache-2.0
//
// What an attention kernel is given: the arguments of goldenrule_gpu.h, validated and resolved.
// Lengths, bounds and pages are read by requests.cuh, which keeps every one inside its buffer.
#pragma once

#include <cstdint>

#include "gpu/common/divisor.hpp"
#include "gpu/common/views.hpp"

namespace goldenrule::gpu::attention {

/// Keys or values of the cache: slots of a page, heads of a slot or the other way round. Strides in
/// bytes.
struct PageView {
  const char* data;
  int64_t page;
  uint32_t slot, head;
};

/// A list of integers, one or more for each request.
struct IndexView {
  const void* data;  // null: absent
  int64_t step;      // elements from one request to the next
  uint8_t wide;
};

/// The numbers of blocks that may share the keys of a row tile, a cluster of which is launched.
inline constexpr int kSplits[] = {1, 2, 4, 8, 9, 16};
/// The one whose blocks have a multiprocessor each (sm90/decode_config.cuh).
inline constexpr int kSplitsAlone = 9;

struct Params {
  // Sizes and places.
  Divisor by_tiles;  // tiles: row tiles of a request that the grid has at a time
  Divisor by_heads;  // heads of the grid: H, or HV for kernels of one query head
  Divisor by_group;  // HV / H
  Divisor by_page;   // page_size
  Divisor by_splits;
  int32_t tiles, grid_heads;
  int32_t splits;  // one of kSplits
  int32_t N, H, HV, group, K, V;
  int32_t head_step;   // from one query head of a group to the next: 1, or H where they are tiled
  int32_t group_step;  // from the first query head of a group to that of the next: HV / H, or 1
  int32_t total, fresh, pages, page_size, table_width, table_size;
  // The rule.
  uint8_t mask, blocks_of_segment, in_cache, paged;
  int32_t block, window_left, window_right;
  float scale_log2;  // scale * log2 e
  float lse_factor;  // of a logarithm to base 2
  // The tensors. TokenView::row is 0: tokens are packed.
  TokenView q, k, v, o;
  PageView k_cache, v_cache;
  float* lse;  // null: not wanted
  int64_t lse_token, lse_head;
  Element type, o_type;
  // What only the device reads.
  IndexView query_bounds, fresh_bounds, lengths, table, list_bounds, list, offsets, valid;
};

}  // namespace goldenrule::gpu::attention
