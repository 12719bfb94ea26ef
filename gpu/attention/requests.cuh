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
#include "gpu/ptx/index_loads.cuh"
#include "gpu/ptx/memory.cuh"

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

/// Number i of a list, on its way; 0 of a list that is absent.
__device__ __forceinline__ uint2 request_index(const IndexView& list, int64_t i) {
  return ptx::load_index_bits(list.data != nullptr, list.data, list.wide != 0, i * list.step);
}

__device__ __forceinline__ int64_t index_of(const IndexView& list, uint2 bits) {
  return index_from_bits(bits, list.wide != 0);
}

__device__ __forceinline__ int64_t index_at(const IndexView& list, int64_t i) {
  return index_of(list, request_index(list, i));
}

/// Two bounds of a list, on their way.
struct RequestedBounds {
  uint2 begin, end;
};

__device__ __forceinline__ RequestedBounds request_bounds(const IndexView& bounds, int n) {
  return {request_index(bounds, n), request_index(bounds, int64_t{n} + 1)};
}

__device__ __forceinline__ Span span_of(const IndexView& bounds, const RequestedBounds& x,
                                        int32_t size) {
  return span_between(index_of(bounds, x.begin), index_of(bounds, x.end), size);
}

/// What a request is made of comes from up to nine places of memory: all are asked for before any
/// is looked at, because one behind the other they were a third of a short call.
__device__ __forceinline__ Request request_at(const Params& p, int n) {
  const RequestedBounds query_bounds = request_bounds(p.query_bounds, n);
  const RequestedBounds fresh_bounds = request_bounds(p.fresh_bounds, n);
  const RequestedBounds list_bounds = request_bounds(p.list_bounds, n);
  const uint2 valid = request_index(p.valid, n), length = request_index(p.lengths, n),
              offset = request_index(p.offsets, n);
  Request r{};
  r.n = n;
  const Span queries = span_of(p.query_bounds, query_bounds, p.total);
  r.first_query = queries.first;
  r.queries = r.valid = queries.count;
  if (p.valid.data != nullptr) {
    r.valid = static_cast<int32_t>(clamped(index_of(p.valid, valid), 0, queries.count));
  }
  if (p.paged != 0) {
    const bool listed = p.list.data != nullptr;
    const Span pages =
        listed ? span_of(p.list_bounds, list_bounds, p.table_size) : Span{0, p.table_width};
    r.pages = listed ? pages.first : n * p.table.step;
    const int64_t room = int64_t{pages.count} * p.page_size;
    const int64_t most = room < GOLDENRULE_GPU_MAX_KEYS ? room : GOLDENRULE_GPU_MAX_KEYS;
    r.cached = static_cast<int32_t>(clamped(index_of(p.lengths, length), 0, most));
  }
  if (p.fresh_bounds.data != nullptr) {
    const Span fresh = span_of(p.fresh_bounds, fresh_bounds, p.fresh);
    r.first_fresh = fresh.first;
    r.fresh = fresh.count;
  }
  r.offset = r.cached - (p.in_cache != 0 ? r.queries : 0);
  if (p.offsets.data != nullptr) {
    r.offset = clamped(index_of(p.offsets, offset), -kFarPosition, kFarPosition);
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

/// The page that key t of the cache is on, on its way; unless `asks`, 0.
__device__ __forceinline__ uint2 request_page(const Params& p, const Request& r, int32_t t,
                                              bool asks) {
  const IndexView& list = p.list.data == nullptr ? p.table : p.list;
  return ptx::load_index_bits(asks, list.data, list.wide != 0, r.pages + p.by_page.quotient(t));
}

/// Key t of the cache, or its value, for key head h; null: there is none.
__device__ __forceinline__ const char* cached_row(const Params& p, const PageView& x, int32_t t,
                                                  int h, uint2 bits) {
  const bool wide = p.list.data == nullptr ? p.table.wide != 0 : p.list.wide != 0;
  const int64_t page = index_from_bits(bits, wide);
  if (page < 0 || page >= p.pages) return nullptr;
  const int32_t slot = t - p.by_page.quotient(t) * p.page_size;
  return x.data + page * x.page + static_cast<uint64_t>(x.slot) * static_cast<uint32_t>(slot) +
         static_cast<uint64_t>(x.head) * static_cast<uint32_t>(h);
}

__device__ __forceinline__ const char* fresh_row(const Request& r, const TokenView& x, int32_t t,
                                                 int h) {
  return token_row(x, 0, r.first_fresh + (t - r.cached), h);
}

/// Query head `g` of the group of key head h.
__device__ __forceinline__ int query_head(const Params& p, int h, int g) {
  return h * p.group_step + g * p.head_step;
}

}  // namespace goldenrule::gpu::attention
