// SPDX-License-Identifier: Apache-2.0
//
// Which queries and keys a request has, where they lie, and what a query sees: the rules of
// goldenrule_gpu.h in one place. Whatever the device data hold, no place outside a buffer is formed
// from it. Keys are counted over the cache and then the fresh ones; every mask and window is a
// range of these numbers.
#pragma once

#include "gpu/attention/params.hpp"
#include "gpu/common/elements.cuh"
#include "gpu/common/spans.hpp"
#include "gpu/goldenrule_gpu.h"

namespace goldenrule::gpu::attention {

/// Keys first <= t < last.
struct Range {
  int32_t first, last;
};

struct Request {
  int32_t n;
  int32_t first_query, queries, valid;
  int64_t offset;  // position of the first query
  int64_t pages;   // where its pages begin in the table or list
  int32_t cached, first_fresh, fresh;
  Range padding;  // keys of the source that the call brings, at positions of padding
};

/// Beyond any number of keys; positions are cut there, and no sum of them overflows.
inline constexpr int64_t kFarPosition = int64_t{1} << 40;

__device__ __forceinline__ int64_t index_at(const IndexView& list, int64_t i) {
  return load_index(list.data, list.wide != 0, i * list.step);
}

__device__ __forceinline__ Span bounds_at(const IndexView& bounds, int n, int32_t size) {
  return span_between(index_at(bounds, n), index_at(bounds, int64_t{n} + 1), size);
}

/// How many pages request n has, and where they begin.
__device__ __forceinline__ Span pages_of(const Params& p, int n, int64_t& first) {
  if (p.list.data == nullptr) {
    first = n * p.table.step;
    return {0, p.table_width};
  }
  const Span pages = bounds_at(p.list_bounds, n, p.table_size);
  first = pages.first;
  return pages;
}

__device__ __forceinline__ Request request_at(const Params& p, int n) {
  Request r{};
  r.n = n;
  const Span queries = bounds_at(p.query_bounds, n, p.total);
  r.first_query = queries.first;
  r.queries = r.valid = queries.count;
  if (p.valid.data != nullptr) {
    r.valid = static_cast<int32_t>(clamped(index_at(p.valid, n), 0, queries.count));
  }
  if (p.paged != 0) {
    const Span pages = pages_of(p, n, r.pages);
    const int64_t room = int64_t{pages.count} * p.page_size;
    const int64_t most = room < GOLDENRULE_GPU_MAX_KEYS ? room : GOLDENRULE_GPU_MAX_KEYS;
    r.cached = static_cast<int32_t>(clamped(index_at(p.lengths, n), 0, most));
  }
  if (p.fresh_bounds.data != nullptr) {
    const Span fresh = bounds_at(p.fresh_bounds, n, p.fresh);
    r.first_fresh = fresh.first;
    r.fresh = fresh.count;
  }
  r.offset = r.cached - (p.in_cache != 0 ? r.queries : 0);
  if (p.offsets.data != nullptr) {
    r.offset = clamped(index_at(p.offsets, n), -kFarPosition, kFarPosition);
  }
  const int64_t keys = int64_t{r.cached} + r.fresh;
  r.padding = {static_cast<int32_t>(clamped(r.offset + r.valid, 0, keys)),
               static_cast<int32_t>(clamped(r.offset + r.queries, 0, keys))};
  return r;
}

__device__ __forceinline__ int64_t floor_quotient(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// What query i of the request sees, as far as masks and windows go.
__device__ __forceinline__ Range visible_to(const Params& p, const Request& r, int i) {
  const int64_t position = r.offset + i;
  int64_t first = 0, last = kFarPosition;
  if (p.mask == GOLDENRULE_GPU_MASK_CAUSAL) last = position + 1;
  if (p.mask == GOLDENRULE_GPU_MASK_BLOCK_CAUSAL) {
    const int64_t base = p.blocks_of_segment != 0 ? r.offset : 0;
    last = base + (floor_quotient(position - base, p.block) + 1) * p.block;
  }
  if (p.window_left >= 0) first = position - p.window_left;
  if (p.window_right >= 0) last = min(last, position + p.window_right + 1);
  const int64_t keys = int64_t{r.cached} + r.fresh;
  return {static_cast<int32_t>(clamped(first, 0, keys)),
          static_cast<int32_t>(clamped(last, 0, keys))};
}

/// Whether key t is one that the call brings for a query that is padding.
__device__ __forceinline__ bool is_padding(const Params& p, const Request& r, int32_t t) {
  const bool brought = (t < r.cached) == (p.in_cache != 0);
  return brought && r.padding.first <= t && t < r.padding.last;
}

/// A key and its value for key head h; null: there is none.
struct KeyRow {
  const char* k;
  const char* v;
};

/// The page that key t of the cache is on, on its way.
__device__ __forceinline__ uint2 request_page(const Params& p, const Request& r, int32_t t) {
  const IndexView& list = p.list.data == nullptr ? p.table : p.list;
  return load_index_bits(list.data, list.wide != 0, r.pages + p.by_page.quotient(t));
}

__device__ __forceinline__ KeyRow cached_row(const Params& p, int32_t t, int h, uint2 bits) {
  const bool wide = p.list.data == nullptr ? p.table.wide != 0 : p.list.wide != 0;
  const int64_t page = index_from_bits(bits, wide);
  if (page < 0 || page >= p.pages) return {nullptr, nullptr};
  const int32_t slot = t - p.by_page.quotient(t) * p.page_size;
  const auto at = [&](const PageView& x) {
    return x.data + page * x.page + static_cast<uint64_t>(x.slot) * static_cast<uint32_t>(slot) +
           static_cast<uint64_t>(x.head) * static_cast<uint32_t>(h);
  };
  return {at(p.k_cache), at(p.v_cache)};
}

__device__ __forceinline__ KeyRow fresh_row(const Params& p, const Request& r, int32_t t, int h) {
  const int row = r.first_fresh + (t - r.cached);
  return {token_row(p.k, 0, row, h), token_row(p.v, 0, row, h)};
}

/// Query head `g` of the group of key head h.
__device__ __forceinline__ int query_head(const Params& p, int h, int g) {
  return h * p.group_step + g * p.head_step;
}

}  // namespace goldenrule::gpu::attention
