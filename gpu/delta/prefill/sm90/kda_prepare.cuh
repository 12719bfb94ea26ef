// SPDX-License-Identifier: Apache-2.0
//
// The record of a chunk: what all values of a head share. With r_i = 1/|k_i|, s_i = scale/|q_i|,
// D_ij = alpha_j+1 .. alpha_i for each channel and the decayed products
//
//     kk_ij = sum_c k_ic k_jc D_ijc,   qk_ij = sum_c q_ic k_jc D_ijc
//
// of kda_levels.cuh or kda_anchors.cuh,
//
//     A_ij  = r_i kk_ij r_j beta_j           i > j, else 0
//     T     = (I + A)^-1                     triangle.cuh
//     T'_ij = T_ij                           i > j, rounded to bf16
//     P_ij  = s_i qk_ij r_j beta_j           i >= j, rounded to bf16
//
// and the keys and queries that meet the state,
//
//     k_in  = r k e^G,   q_in = s q e^G,   k_out = r k beta e^(G_C - G),
//
// rounded to bf16 once. As in gdn_prepare.cuh beta stands on the columns, so that the scan's
// Z = (I + T') X is v_new / beta, and the diagonal of T stays in fp32.
#pragma once

#include "gpu/delta/prefill/sm90/kda_supply.cuh"
#include "gpu/delta/prefill/sm90/kda_unbounded.cuh"

namespace goldenrule::gpu::prefill {

/// One record after the other by a group of four warps. While two of them invert blocks of T the
/// third has the rows of the next chunk copied in; then it puts T together. The others are at the
/// gates of the next chunk by then.
template <bool kBounded>
class KdaPreparation {
 public:
  using Products = std::conditional_t<kBounded, KdaAnchors, KdaUnbounded>;

  __device__ __forceinline__ KdaPreparation(const Params& p, const TileMaps& maps,
                                            KdaPreparationStorage& storage, int group)
      : p_(p),
        s_(storage),
        place_{warp_ / 2, warp_ % 2, lane_of_thread(), 1 + group},
        supply_(p, maps, storage, place_, warp_ == kMerger) {}

  __device__ __forceinline__ void run(KdaRecords records) {
    Products products(s_, place_);
    records.settle();
    ChunkPlace at = place_of(p_, records);
    fetch(products, at);
    supply_.begin_rows(at);
#pragma unroll 1
    for (bool any = !records.done(); any;) {
      place_.lane = ptx::hidden(place_.lane);  // no address is kept in local memory
      products.place.lane = place_.lane;
      records.advance();
      any = !records.done();
      const ChunkPlace next = place_of(p_, records);
      if (at.count > 0) make_products(products, at, next);
      supply_.begin_rows(next);
      fetch(products, next);
      if (at.count > 0) make_inverse(at);
      at = next;
    }
    supply_.announce_record<0>();
  }

 private:
  static constexpr int kSteps = kHeadKeys / 16;
  static constexpr int kMerger = 2;  ///< the warp

  /// Asks for what a chunk needs first; it arrives behind the chunk before.
  __device__ __forceinline__ void fetch(Products& products, const ChunkPlace& at) {
    products.fetch(p_, at);
    if (thread_ < at.count) {
      beta_ = load_bits(token_row(p_.beta, 0, at.first + thread_, at.hv), p_.beta_type);
    }
  }

  __device__ __forceinline__ void make_products(Products& products, const ChunkPlace& at,
                                                const ChunkPlace& next) {
    if (at.count != kKdaChunk) supply_.load_short_rows(at);
    products.make_decays(p_, at);
    supply_.prefetch_rows(next);
    make_beta(at);
    supply_.finish_rows(at);
    make_norms(at, products.needs_own_products());
    products.multiply([&] { supply_.begin_store(at); });
    make_total_decay();
    clear_above_diagonal();
    ptx::fence_async_readers();
    place_.synchronize();  // A and P are there, keys and queries are read
  }
  __device__ __forceinline__ void make_inverse(const ChunkPlace& at) {
    if (warp_ < 2) {
      invert_block(warp_);
      ptx::fence_async_readers();
    }
    if (warp_ != kMerger) {
      ptx::arrive(s_.inverted);
      return;
    }
    supply_.announce_record<1>();
    ptx::wait_for_phase(s_.inverted, inverted_parity_);
    inverted_parity_ ^= 1;
    merge_blocks_of_inverse();
    ptx::fence_async_readers();
    __syncwarp();
    supply_.finish_store(at);
  }
  __device__ __forceinline__ void make_beta(const ChunkPlace& at) {
    if (thread_ >= kKdaChunk) return;
    s_.factors[thread_].beta =
        thread_ < at.count ? beta_of(p_, from_bits(beta_, p_.beta_type)) : 0.f;
  }

  /// Warps 0 and 1 for k, 2 and 3 for q, 16 tokens each.
  __device__ __forceinline__ void make_norms(const ChunkPlace& at, bool with_own_products) {
    const int first = kBlockTokens * place_.side;
    uint32_t k[kSteps][4];
    load_rows(key_tile(s_.chunk, 0), first, k);
    if (place_.half == 0) {
      finish_rows(row_products(k, k), [&](int row, float squares) {
        s_.factors[first + row].key = norm_of(at, first + row, squares);
      });
      return;
    }
    uint32_t q[kSteps][4];
    load_rows(query_tile(s_.chunk, 0), first, q);
    finish_rows(row_products(q, q), [&](int row, float squares) {
      s_.factors[first + row].query = norm_of(at, first + row, squares) * p_.scale;
    });
    if (with_own_products) {
      finish_rows(row_products(q, k),
                  [&](int row, float product) { s_.factors[first + row].own = product; });
    }
  }
  [[nodiscard]] __device__ __forceinline__ float norm_of(const ChunkPlace& at, int token,
                                                         float squares) const {
    return token < at.count ? norm_factor(p_, squares) : 0.f;
  }
  __device__ __forceinline__ void load_rows(const char* tiles, int first,
                                            uint32_t (&rows)[kSteps][4]) const {
    const RowTiles x{ptx::shared_address(tiles), kTileBytes};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) x.load_left(rows[s], first, s, place_.lane);
  }
  /// The diagonal of x y^T: rows g and g + 8, of use where finish_rows calls.
  __device__ __forceinline__ float2 row_products(const uint32_t (&x)[kSteps][4],
                                                 const uint32_t (&y)[kSteps][4]) const {
    float upper[2][4] = {}, lower[2][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ptx::multiply_add(upper[s % 2], x[s], make_uint2(y[s][0], y[s][2]));
      ptx::multiply_add(lower[s % 2], x[s], make_uint2(y[s][1], y[s][3]));
    }
    const bool odd = (place_.g() & 1) != 0;
    return make_float2(odd ? upper[0][1] + upper[1][1] : upper[0][0] + upper[1][0],
                       odd ? lower[0][3] + lower[1][3] : lower[0][2] + lower[1][2]);
  }
  /// In the lanes that hold elements of the diagonal.
  template <class F>
  __device__ __forceinline__ void finish_rows(float2 products, F&& f) const {
    if (place_.t() != place_.g() / 2) return;
    f(place_.g(), products.x);
    f(place_.g() + 8, products.y);
  }

  /// e^G_C.
  __device__ __forceinline__ void make_total_decay() const {
    if (place_.half != 0) return;
    *reinterpret_cast<float2*>(&s_.chunk.decay[place_.channel()]) =
        s_.total[0][place_.pair()] * s_.total[1][place_.pair()];
  }
  /// The blocks of T' and P whose rows are the first 16 tokens and columns the second.
  __device__ __forceinline__ void clear_above_diagonal() const {
    if (thread_ >= 4 * kBlockTokens) return;
    const int piece = thread_ % 4 / 2 * 4 + 2 + thread_ % 2;  // 2 and 3 of T', 6 and 7 of both
    *reinterpret_cast<uint4*>(s_.chunk.corrections + piece_offset(thread_ / 4, piece)) =
        make_uint4(0, 0, 0, 0);
  }

  [[nodiscard]] __device__ __forceinline__ TermTiles terms() const {
    return {s_.operands.terms.high, s_.operands.terms.low};
  }
  /// A diagonal block of T, by one warp.
  __device__ __forceinline__ void invert_block(int block) const {
    const int first = kBlockTokens * block, i = place_.lane % 16;
    float x[16];
    invert_unit_block(
        [&](int row, int quarter) {
          return *reinterpret_cast<const float4*>(&s_.diagonal[block][row][4 * quarter]);
        },
        i, x);
    if (place_.lane >= 16) return;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      uint32_t high[4], low[4], below[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int j = 8 * side + 2 * m;
        const TwoTerms terms = two_terms(x[j], x[j + 1]);
        high[m] = terms.high;
        low[m] = terms.low;
        below[m] = bf16_pair(j < i ? x[j] : 0.f, j + 1 < i ? x[j + 1] : 0.f);
      }
      const uint32_t at = piece_offset(first + i, first / 8 + side);
      store_piece(terms().high + at, high);
      store_piece(terms().low + at, low);
      store_piece(s_.chunk.corrections + at, below);
    }
  }
  /// Rows 16 to 31, columns 0 to 15 of T.
  __device__ __forceinline__ void merge_blocks_of_inverse() const {
    BlockSum x;
    merge_blocks<1>(terms(), kBlockTokens, kBlockTokens, 0, 0, place_.lane, x);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_corrections(s_.chunk, kBlockTokens + 8 * half + place_.g(), 8 * n + 2 * place_.t(),
                          make_float2(x.value(n, 2 * half), x.value(n, 2 * half + 1)));
      }
    }
  }

  __device__ __forceinline__ static int lane_of_thread() {
    return static_cast<int>(threadIdx.x) % 32;
  }

  const Params& p_;
  KdaPreparationStorage& s_;
  int thread_ = static_cast<int>(threadIdx.x) % kKdaGroupThreads;
  int warp_ = __shfl_sync(kAllLanes, thread_ / 32, 0);
  KdaPlace place_;
  uint32_t beta_ = 0;  ///< of this thread's token, as it lies in memory
  KdaSupply supply_;
  uint32_t inverted_parity_ = 0;
};

}  // namespace goldenrule::gpu::prefill
