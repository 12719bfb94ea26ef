// SPDX-License-Identifier: Apache-2.0
//
// Attention for every call that the interface takes: one block for a query and a query head, in
// fp32, a key for each thread and then a column of the values for each thread. What a query does
// not see is not read, so nothing of it can reach the output.
#pragma once

#include "gpu/attention/block.cuh"
#include "gpu/ptx/functions.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::attention {

inline constexpr int kPlainThreads = 128;
inline constexpr int kPlainWarps = kPlainThreads / 32;
inline constexpr int kPlainColumns = GOLDENRULE_GPU_MAX_HEAD_DIM / kPlainThreads;  // of a thread

struct PlainStorage {
  float q[GOLDENRULE_GPU_MAX_HEAD_DIM];
  float weights[kPlainThreads];
  const char* values[kPlainThreads];  // null: no key
  float of_warps[kPlainWarps];
};

__device__ __forceinline__ float half_at(const char* row, Element type, int i) {
  return from_bits(load_bits(row + 2 * i, type), type);
}

/// The largest, or the sum, of what all threads have. Barriers inside.
template <class F>
__device__ __forceinline__ float of_block(PlainStorage& s, float x, F&& f) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) x = f(x, __shfl_xor_sync(0xffffffffU, x, bits));
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = s.of_warps[0];
#pragma unroll
  for (int i = 1; i < kPlainWarps; ++i) x = f(x, s.of_warps[i]);
  return x;
}

/// A key and its value; null: there is none.
struct KeyRow {
  const char* k;
  const char* v;
};

/// Key t for key head h.
__device__ __forceinline__ KeyRow plain_row(const Params& p, const Request& r, int32_t t, int h) {
  if (is_padding(p, r, t)) return {nullptr, nullptr};
  if (t >= r.cached) return {fresh_row(r, p.k, t, h), fresh_row(r, p.v, t, h)};
  const uint2 page = request_page(p, r, t, true);
  return {cached_row(p, p.k_cache, t, h, page), cached_row(p, p.v_cache, t, h, page)};
}

/// Four sums, so that rounding errors do not add up over a whole row.
__device__ __forceinline__ float plain_score(const Params& p, const PlainStorage& s,
                                             const char* k) {
  float sums[4] = {};
  int d = 0;
  for (; d + 4 <= p.K; d += 4) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e] = fmaf(s.q[d + e], half_at(k, p.type, d + e), sums[e]);
  }
  for (; d < p.K; ++d) sums[0] = fmaf(s.q[d], half_at(k, p.type, d), sums[0]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) * p.scale_log2;
}

/// What a thread has of a row: its columns, and the sum of the weights of its keys.
struct PlainRow {
  float largest = kMinusInfinity, sum = 0.f;
  float o[kPlainColumns] = {};
};

/// Keys t to t + 127, of which those below `last` are seen. Barriers inside.
__device__ __forceinline__ void take_keys(const Params& p, const Request& r, int32_t t,
                                          int32_t last, int h, PlainStorage& s, PlainRow& row) {
  const int thread = static_cast<int>(threadIdx.x);
  const KeyRow key = t + thread < last ? plain_row(p, r, t + thread, h) : KeyRow{nullptr, nullptr};
  const float score = key.k == nullptr ? kMinusInfinity : plain_score(p, s, key.k);
  const float tile = of_block(s, score, [](float a, float b) { return fmaxf(a, b); });
  const float largest = fmaxf(row.largest, tile);
  const float used = finite_largest(largest);
  const float before = ptx::exp2_approximate(row.largest - used);
  const float weight = key.k == nullptr ? 0.f : ptx::exp2_approximate(score - used);
  row.largest = largest;
  row.sum = fmaf(row.sum, before, weight);
  s.weights[thread] = weight;
  s.values[thread] = key.v;
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kPlainColumns; ++c) {
    const int column = thread + c * kPlainThreads;
    if (column >= p.V) continue;
    row.o[c] *= before;
    for (int k = 0; k < kPlainThreads; ++k) {
      if (s.values[k] == nullptr) continue;
      row.o[c] = fmaf(s.weights[k], half_at(s.values[k], p.type, column), row.o[c]);
    }
  }
  __syncthreads();
}

__device__ __forceinline__ void plain_query(const Params& p, const Request& r, int head, int i,
                                            PlainStorage& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const int h = p.head_step == 1 ? p.by_group.quotient(head) : head % p.H;
  const char* from = token_row(p.q, 0, r.first_query + i, head);
  for (int d = thread; d < p.K; d += kPlainThreads) s.q[d] = half_at(from, p.type, d);
  __syncthreads();
  PlainRow row;
  const Range seen = i < r.valid ? visible_to(p, r, i) : Range{0, 0};
  for (int32_t t = seen.first; t < seen.last; t += kPlainThreads) {
    take_keys(p, r, t, seen.last, h, s, row);
  }
  const float sum = of_block(s, row.sum, [](float a, float b) { return a + b; });
  char* const to = token_row(p.o, 0, r.first_query + i, head);
#pragma unroll
  for (int c = 0; c < kPlainColumns; ++c) {
    const int column = thread + c * kPlainThreads;
    if (column >= p.V) continue;
    store_element(to + column * element_size(p.o_type), p.o_type,
                  sum == 0.f ? 0.f : row.o[c] / sum);
  }
  if (thread == 0) {
    store_lse(p, {r.first_query + i, head, true, i < r.valid}, row.largest, sum);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kPlainThreads)
    attention_plain_kernel(const __grid_constant__ Params p) {
  auto& s = *reinterpret_cast<PlainStorage*>(attention_shared);
  ptx::wait_for_dependencies();
  const Work w = work_of_block(p);
  const Request r = request_at(p, w.n);
  for (int i = w.tile; i < r.queries; i += p.tiles) plain_query(p, r, w.h, i, s);
}

}  // namespace goldenrule::gpu::attention
