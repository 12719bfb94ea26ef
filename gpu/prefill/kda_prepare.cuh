// SPDX-License-Identifier: Apache-2.0
//
// The record of a chunk: what all values of a head share. With r_i = 1/|k_i|, s_i = scale/|q_i| and
// the decayed products kk and qk of kda_levels.cuh
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
//
// A block of four warps prepares one record; warp 2 h + s has tokens 16 h to 16 h + 15 and channels
// 64 s to 64 s + 63, a thread two channels.
// Length: one class, whose steps hand each other registers and shared memory.
#pragma once

#include "gpu/prefill/copy_tiles.cuh"
#include "gpu/prefill/kda_levels.cuh"
#include "gpu/prefill/tile_maps.hpp"
#include "gpu/prefill/triangle.cuh"
#include "gpu/ptx/bulk_copy.cuh"

namespace goldenrule::gpu::prefill {

template <bool kCheckpoints>
class KdaPreparation {
 public:
  __device__ __forceinline__ KdaPreparation(const Params& p, const TileMaps& maps,
                                            KdaPreparationStorage& storage)
      : p_(p), maps_(maps), s_(storage), terms_{storage.terms.high, storage.terms.low} {}

  __device__ __forceinline__ void run() {
    const int record = p_.by_heads.quotient(static_cast<int>(blockIdx.x));
    const int hv = static_cast<int>(blockIdx.x) - record * p_.HV;
    const ChunkPlace at = place_of_record<kCheckpoints, kKdaChunk>(p_, record, hv);
    if (at.count == 0) return;
    begin_loads(at);
    KdaDecays(p_, s_, at, place_).make();
    make_beta(at);
    finish_loads(at);
    __syncthreads();  // beta is there
    make_norms(at);
    KdaTokens tokens;
    load_tokens(tokens);
    float sums[kLevels][4] = {};
    multiply_levels(tokens, sums);
    write_between(tokens);
    __syncthreads();  // norms, totals, half sums and what lies between the blocks are there
    float between[4] = {};
    multiply_between(between);
    add_halves(sums);
    __syncthreads();  // the operands between the blocks are read, and k and q are in registers
    write_operands(tokens);
    finish_levels(sums);
    clear_above_diagonal();
    __syncthreads();  // the blocks on the diagonal are there, half sums are read
    finish_between(between);
    if (warp_ >= 2) invert_block(warp_ - 2);
    __syncthreads();
    if (warp_ == 0) merge_blocks_of_inverse();
    ptx::fence_async_readers();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::store_bulk(record_of<kKdaRecordBytes>(p_, record, hv), &s_.chunk, kKdaRecordBytes);
      ptx::wait_for_bulk_reads();
    }
  }

 private:
  static constexpr int kThreads = 128;
  static constexpr int kSteps = kHeadKeys / 16;

  __device__ __forceinline__ char* keys(int side) const {
    return s_.chunk.keys_queries + side * kTileBytes;
  }
  __device__ __forceinline__ char* queries(int side) const { return keys(side) + kKdaTileBytes; }

  /// k and q where k_in and q_in will be.
  __device__ __forceinline__ void begin_loads(const ChunkPlace& at) {
    if (at.count == kKdaChunk) {
      if (threadIdx.x != 0) return;
      ptx::initialize_barrier(s_.loaded, 1);
      ptx::fence_async_readers();
      ptx::arrive_expecting(s_.loaded, 4 * kKdaTileBytes);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        ptx::copy_box(keys(side), &maps_.k, side * kTileColumns, at.h, at.first, s_.loaded);
        ptx::copy_box(queries(side), &maps_.q, side * kTileColumns, at.h, at.first, s_.loaded);
      }
      return;
    }
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      copy_tiles<1, kThreads, kKdaChunk>(keys(side),
                                         token_row(p_.k, 0, at.first, at.h) + side * kTileRowBytes,
                                         p_.k.token, at.count);
      copy_tiles<1, kThreads, kKdaChunk>(queries(side),
                                         token_row(p_.q, 0, at.first, at.h) + side * kTileRowBytes,
                                         p_.q.token, at.count);
    }
  }
  __device__ __forceinline__ void finish_loads(const ChunkPlace& at) {
    if (at.count != kKdaChunk) ptx::wait_for_copies();
    __syncthreads();  // the barrier is there, or all copies
    if (at.count == kKdaChunk) ptx::wait_for_phase(s_.loaded, 0);
  }

  __device__ __forceinline__ void make_beta(const ChunkPlace& at) {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= kKdaChunk) return;
    float beta = 0.f;
    if (token < at.count) {
      const char* from = token_row(p_.beta, 0, at.first + token, at.hv);
      beta = beta_of(p_, from_bits(load_bits(from, p_.beta_type), p_.beta_type));
    }
    s_.beta[token] = beta;
  }

  /// Rows 16 half to 16 half + 15 of k or q as left operands.
  __device__ __forceinline__ void load_rows(const char* tiles, uint32_t (&rows)[kSteps][4]) const {
    const uint32_t first = ptx::shared_address(tiles);
    const int row = 16 * (warp_ % 2) + lane_ % 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ptx::load_matrices(rows[s], first + static_cast<uint32_t>((s / 4) * kTileBytes) +
                                      piece_offset(row, 2 * (s % 4) + lane_ / 16));
    }
  }
  /// The diagonal of x y^T: rows g and g + 8 in the lanes for which holds_diagonal().
  __device__ __forceinline__ float2 row_products(const uint32_t (&x)[kSteps][4],
                                                 const uint32_t (&y)[kSteps][4]) const {
    float upper[2][4] = {}, lower[2][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ptx::multiply_add(upper[s % 2], x[s], make_uint2(y[s][0], y[s][2]));
      ptx::multiply_add(lower[s % 2], x[s], make_uint2(y[s][1], y[s][3]));
    }
    const bool odd = (g_ & 1) != 0;
    return make_float2(odd ? upper[0][1] + upper[1][1] : upper[0][0] + upper[1][0],
                       odd ? lower[0][3] + lower[1][3] : lower[0][2] + lower[1][2]);
  }
  [[nodiscard]] __device__ __forceinline__ bool holds_diagonal() const { return t_ == g_ / 2; }

  /// Warps 0 and 1 for k, 2 and 3 for q, 16 tokens each.
  __device__ __forceinline__ void make_norms(const ChunkPlace& at) {
    uint32_t k[kSteps][4];
    load_rows(keys(0), k);
    if (warp_ < 2) {
      const float2 squares = row_products(k, k);
      if (!holds_diagonal()) return;
      finish_key(at, 16 * warp_ + g_, squares.x);
      finish_key(at, 16 * warp_ + g_ + 8, squares.y);
      return;
    }
    uint32_t q[kSteps][4];
    load_rows(queries(0), q);
    const float2 squares = row_products(q, q);
    const float2 products = row_products(q, k);
    if (!holds_diagonal()) return;
    const int first = 16 * (warp_ - 2) + g_;
    s_.own[first] = products.x;
    s_.own[first + 8] = products.y;
    s_.norm[kKdaChunk + first] = norm_of(at, first, squares.x) * p_.scale;
    s_.norm[kKdaChunk + first + 8] = norm_of(at, first + 8, squares.y) * p_.scale;
  }
  [[nodiscard]] __device__ __forceinline__ float norm_of(const ChunkPlace& at, int token,
                                                         float squares) const {
    return token < at.count ? norm_factor(p_, squares) : 0.f;
  }
  __device__ __forceinline__ void finish_key(const ChunkPlace& at, int token, float squares) {
    const float norm = norm_of(at, token, squares);
    s_.norm[token] = norm;
    s_.column[token] = norm * s_.beta[token];
  }

  /// Where this thread's two channels of row `row` lie in a tile.
  [[nodiscard]] __device__ __forceinline__ uint32_t place_in_row(int row) const {
    return piece_offset(row, lane_ / 4) + static_cast<uint32_t>(lane_ % 4 * 4);
  }
  __device__ __forceinline__ static uint32_t& word(char* at) {
    return *reinterpret_cast<uint32_t*>(at);
  }

  __device__ __forceinline__ void load_tokens(KdaTokens& x) const {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      const int token = kBlockTokens * place_.half + i;
      x.k[i] = word(keys(place_.side) + place_in_row(token));
      x.q[i] = word(queries(place_.side) + place_in_row(token));
      x.alpha[i] = s_.decay[token][place_.pair()];
    }
  }

  __device__ __forceinline__ void multiply_levels(const KdaTokens& x, float (&sums)[kLevels][4]) {
    char* memory = s_.levels[warp_];
    multiply_level<8>(x, memory, lane_, sums[0]);
    multiply_level<4>(x, memory, lane_, sums[1]);
    multiply_level<2>(x, memory, lane_, sums[2]);
    multiply_level<1>(x, memory, lane_, sums[3]);
    if (place_.side == 0) return;
      // In this warp's own part of the union.
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      half_sum(place_.half, level) =
          make_float4(sums[level][0], sums[level][1], sums[level][2], sums[level][3]);
    }
  }
  [[nodiscard]] __device__ __forceinline__ float4& half_sum(int half, int level) const {
    return reinterpret_cast<float4*>(s_.levels[2 * half + 1])[32 * level + lane_];
  }
  __device__ __forceinline__ void add_halves(float (&sums)[kLevels][4]) const {
    if (place_.side != 0) return;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const float4 other = half_sum(place_.half, level);
      sums[level][0] += other.x;
      sums[level][1] += other.y;
      sums[level][2] += other.z;
      sums[level][3] += other.w;
    }
  }

  /// The level m = 16: rows are k, then q of the second block, in `update`; columns k of the first,
  /// in `corrections`.
  __device__ __forceinline__ void write_between(const KdaTokens& x) const {
    float2 decay = make_float2(1.f, 1.f);
    if (place_.half == 1) {
      char* rows = s_.chunk.update + place_.side * kKdaTileBytes;
#pragma unroll
      for (int i = 0; i < kBlockTokens; ++i) {
        decay = decay * x.alpha[i];
        word(rows + place_in_row(i)) = decayed(x.k[i], decay);
        word(rows + place_in_row(kBlockTokens + i)) = decayed(x.q[i], decay);
      }
    } else {
      char* columns = s_.chunk.corrections + place_.side * kBytesOfTile<kBlockTokens>;
#pragma unroll
      for (int i = kBlockTokens - 1; i >= 0; --i) {
        word(columns + place_in_row(i)) = decayed(x.k[i], decay);
        decay = decay * x.alpha[i];
      }
    }
  }
  /// Warp 2 r + n: rows 16 r to 16 r + 15 of these, columns 8 n to 8 n + 7.
  __device__ __forceinline__ void multiply_between(float (&sum)[4]) const {
    const uint32_t rows = ptx::shared_address(s_.chunk.update);
    const uint32_t columns = ptx::shared_address(s_.chunk.corrections);
    const int row = 16 * place_.half + lane_ % 16;
    const int column = 8 * place_.side + lane_ % 8;
    float other[4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; s += 2) {
      const auto tile = static_cast<uint32_t>(s / 4);
      uint32_t a[4], next[4], b[4];
      ptx::load_matrices(a,
                         rows + tile * kKdaTileBytes + piece_offset(row, 2 * (s % 4) + lane_ / 16));
      ptx::load_matrices(
          next, rows + tile * kKdaTileBytes + piece_offset(row, 2 * (s % 4 + 1) + lane_ / 16));
      ptx::load_matrices(b, columns + tile * kBytesOfTile<kBlockTokens> +
                                piece_offset(column, 2 * (s % 4) + lane_ / 8));
      ptx::multiply_add(sum, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(other, next, make_uint2(b[2], b[3]));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] += other[e];
  }
  __device__ __forceinline__ void finish_between(const float (&sum)[4]) const {
    const int j = 8 * place_.side + 2 * t_;
    const float2 column = *reinterpret_cast<const float2*>(&s_.column[j]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kBlockTokens + 8 * half + g_;
      const float2 x = make_float2(sum[2 * half], sum[2 * half + 1]) * column *
                       s_.norm[place_.half * kKdaChunk + i];
      if (place_.half == 0) {
        terms_.store_pair(i, j, x.x, x.y);
      } else {
        word(s_.chunk.corrections + pair_offset(i, kKdaChunk + j)) = bf16_pair(x.x, x.y);
      }
    }
  }

  /// k_in and q_in over k and q, k_out, and e^G_C.
  __device__ __forceinline__ void write_operands(const KdaTokens& x) const {
    const float2 first = s_.total[0][place_.pair()], second = s_.total[1][place_.pair()];
    const bool is_first = place_.half == 0;
    float2 decay = is_first ? make_float2(1.f, 1.f) : first;
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      const int token = kBlockTokens * place_.half + i;
      const uint32_t at = place_in_row(token);
      decay = decay * x.alpha[i];
      word(keys(place_.side) + at) = decayed(x.k[i], decay * s_.norm[token]);
      word(queries(place_.side) + at) = decayed(x.q[i], decay * s_.norm[kKdaChunk + token]);
    }
    decay = is_first ? second : make_float2(1.f, 1.f);
#pragma unroll
    for (int i = kBlockTokens - 1; i >= 0; --i) {
      const int token = kBlockTokens * place_.half + i;
      word(s_.chunk.update + place_.side * kKdaTileBytes + place_in_row(token)) =
          decayed(x.k[i], decay * s_.column[token]);
      decay = decay * x.alpha[i];
    }
    if (is_first) {
      *reinterpret_cast<float2*>(&s_.chunk.decay[place_.channel()]) = first * second;
    }
  }

  /// A and P within 16 tokens, by the warps that have all sums.
  __device__ __forceinline__ void finish_levels(const float (&sums)[kLevels][4]) const {
    if (place_.side != 0) return;
    finish_level<8>(sums[0]);
    finish_level<4>(sums[1]);
    finish_level<2>(sums[2]);
    finish_level<1>(sums[3]);
    if (lane_ < kBlockTokens) {
      const int i = kBlockTokens * place_.half + lane_;
      store_p(i, i, s_.own[i] * s_.norm[kKdaChunk + i] * s_.column[i]);
    }
  }
  template <int m>
  __device__ __forceinline__ void finish_level(const float (&sum)[4]) const {
    const int first = kBlockTokens * place_.half;
    for_level_pairs<m>(lane_, [&](int i, int j, int e) {
      const float column = s_.column[first + j];
      s_.diagonal[place_.half][i][j] = sum[e] * s_.norm[first + i] * column;
      store_p(first + i, first + j, sum[e + 2] * s_.norm[kKdaChunk + first + i] * column);
      store_p(first + j, first + i, 0.f);
    });
  }
  __device__ __forceinline__ __nv_bfloat16& correction(int i, int column) const {
    return *reinterpret_cast<__nv_bfloat16*>(s_.chunk.corrections + piece_offset(i, column / 8) +
                                             column % 8 * 2);
  }
  __device__ __forceinline__ void store_p(int i, int j, float x) const {
    correction(i, kKdaChunk + j) = __float2bfloat16_rn(x);
  }
  /// The blocks of T' and P whose rows are the first 16 tokens and columns the second.
  __device__ __forceinline__ void clear_above_diagonal() const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= 4 * kBlockTokens) return;
    const int piece = thread % 4;  // 2 and 3 of T', 6 and 7 of both
    *reinterpret_cast<uint4*>(s_.chunk.corrections +
                              piece_offset(thread / 4, piece / 2 * 4 + 2 + piece % 2)) =
        make_uint4(0, 0, 0, 0);
  }

  /// A diagonal block of T, by one warp.
  __device__ __forceinline__ void invert_block(int block) const {
    const int first = kBlockTokens * block, i = lane_ % 16;
    float x[16];
    invert_unit_block(
        [&](int row, int quarter) {
          return *reinterpret_cast<const float4*>(&s_.diagonal[block][row][4 * quarter]);
        },
        i, x);
    if (lane_ >= 16) return;
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
      store_piece(terms_.high + at, high);
      store_piece(terms_.low + at, low);
      store_piece(s_.chunk.corrections + at, below);
    }
  }
  /// Rows 16 to 31, columns 0 to 15 of T.
  __device__ __forceinline__ void merge_blocks_of_inverse() const {
    BlockSum x;
    merge_blocks<1>(terms_, kBlockTokens, kBlockTokens, 0, 0, lane_, x);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        word(s_.chunk.corrections + pair_offset(kBlockTokens + 8 * half + g_, 8 * n + 2 * t_)) =
            bf16_pair(x.value(n, 2 * half), x.value(n, 2 * half + 1));
      }
    }
  }

  const Params& p_;
  const TileMaps& maps_;
  KdaPreparationStorage& s_;
  TermTiles terms_;
  int warp_ = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  int lane_ = static_cast<int>(threadIdx.x) % 32;
  int g_ = lane_ / 4, t_ = lane_ % 4;
  KdaPlace place_{warp_ / 2, warp_ % 2, lane_};
};

}  // namespace goldenrule::gpu::prefill
