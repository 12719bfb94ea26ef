// SPDX-License-Identifier: Apache-2.0
//
// What a chunk needs beside the state, which all values of a head share. With the raw k and q, the
// factors r_i = 1/|k_i| and s_i = scale/|q_i|, and G as in chunk_gates.cuh:
//
//     A_ij  = r_i r_j (k_i . k_j) beta_j                       i > j, else 0; no gates
//     T     = (I + A)^-1                                       triangle.cuh
//     T'_ij = T_ij e^(G_i - G_j)                               i > j, rounded to bf16
//     P_ij  = s_i r_j (q_i . k_j) beta_j e^(G_i - G_j)         i >= j, rounded to bf16
//
// With beta on the columns of A the scan's Z = (I + T') X is v_new / beta, and beta enters the
// columns of P and the factors of the update: nothing is left for the scan to multiply. Gating T
// afterwards is a diagonal similarity, e^G T e^-G: no exponent enters the inverse, and every
// exponent is a difference over tokens between j and i. The diagonal of T, which is 1, stays in
// fp32. q^ and k^ are never rounded, as the factors multiply fp32 sums.
//
// A block of four warps prepares one chunk of one value head; warp w owns rows 16 w to 16 w + 15
// and makes only the blocks of 16 x 16 at and below the diagonal. Four blocks per multiprocessor
// hide each other's latencies. Below the diagonal blocks, e^(G_i - G_j) is the product of e^(G_i -
// G_a) and e^(G_a - G_j), with a the last token before i's block: neither can overflow where decays
// are at most 1, and a block needs 16 + 16 exponentials for 256.
// Length: one class, whose steps hand each other rows in registers and tiles in shared memory.
#pragma once

#include "gpu/prefill/chunk_gates.cuh"
#include "gpu/prefill/copy_tiles.cuh"
#include "gpu/prefill/tile_maps.hpp"
#include "gpu/prefill/triangle.cuh"
#include "gpu/ptx/bulk_copy.cuh"

namespace goldenrule::gpu::prefill {

template <bool kCheckpoints>
class GdnPreparation {
 public:
  __device__ __forceinline__ GdnPreparation(const Params& p, const TileMaps& maps,
                                            PreparationStorage& storage)
      : p_(p), maps_(maps), s_(storage), terms_{storage.terms.high, storage.terms.low} {}

  __device__ __forceinline__ void run() {
    const int record = p_.by_heads.quotient(static_cast<int>(blockIdx.x));
    const int hv = static_cast<int>(blockIdx.x) - record * p_.HV;
    const ChunkPlace at = place_of_record<kCheckpoints>(p_, record, hv);
    if (at.count == 0) return;
    load(at);
    uint32_t q[kSteps][4];
    load_rows(s_.q, q);
    sum_squares(q, kChunk);
    {
      uint32_t k[kSteps][4];
      load_rows(s_.k, k);
      sum_squares(k, 0);
      __syncthreads();  // the squares are there; q lies in registers
      finish_factors(at.count);
      __syncthreads();
      make_blocks(k, q);
    }
    __syncthreads();  // all products are done: T' may take the place of k
    clear_above_diagonal();
    invert_own_block();
    __syncthreads();
    if ((warp_ & 1) != 0) merge_pair();
    __syncthreads();
    merge_halves();
    ptx::fence_async_readers();
    __syncthreads();
    if (threadIdx.x == 0) store(record, hv);
  }

 private:
  static constexpr int kSteps = kHeadKeys / 16;
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void load(const ChunkPlace& at) {
    if (threadIdx.x == 0) {
      const bool whole = at.count == kChunk;
      ptx::initialize_barrier(s_.loaded, 1);
      ptx::fence_async_readers();
      ptx::arrive_expecting(s_.loaded,
                            static_cast<int>(sizeof(ChunkInputs)) + (whole ? 4 * kTileBytes : 0));
      ptx::copy_bulk(&s_.inputs, record_of(p_, at.record, at.hv) + kRecordInputs,
                     sizeof(ChunkInputs), s_.loaded);
      if (whole) begin_boxes(at);
    }
    if (at.count != kChunk) {
      copy_tiles<2, kThreads>(s_.k, token_row(p_.k, 0, at.first, at.h), p_.k.token, at.count);
      copy_tiles<2, kThreads>(s_.q, token_row(p_.q, 0, at.first, at.h), p_.q.token, at.count);
      ptx::wait_for_copies();
    }
    __syncthreads();
    ptx::wait_for_phase(s_.loaded, 0);
  }
  __device__ __forceinline__ void begin_boxes(const ChunkPlace& at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ptx::copy_box(s_.k + half * kTileBytes, &maps_.k, half * kTileColumns, at.h, at.first,
                    s_.loaded);
      ptx::copy_box(s_.q + half * kTileBytes, &maps_.q, half * kTileColumns, at.h, at.first,
                    s_.loaded);
    }
  }

  /// This warp's rows of K or Q as left operands.
  __device__ __forceinline__ void load_rows(const char* tiles, uint32_t (&rows)[kSteps][4]) const {
    const uint32_t first = ptx::shared_address(tiles);
    const int row = 16 * warp_ + lane_ % 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ptx::load_matrices(rows[s], first + static_cast<uint32_t>((s / 4) * kTileBytes) +
                                      piece_offset(row, 2 * (s % 4) + lane_ / 16));
    }
  }

  /// The diagonal of x x^T: the rows are both operands of a product.
  __device__ __forceinline__ void sum_squares(const uint32_t (&x)[kSteps][4], int to) {
    float upper[2][4] = {}, lower[2][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ptx::multiply_add(upper[s % 2], x[s], make_uint2(x[s][0], x[s][2]));
      ptx::multiply_add(lower[s % 2], x[s], make_uint2(x[s][1], x[s][3]));
    }
    if (t_ != g_ / 2) return;  // this lane holds no element of the diagonal
    const int odd = g_ & 1;
    float* squares = s_.norm + to + 16 * warp_ + g_;
    squares[0] = odd != 0 ? upper[0][1] + upper[1][1] : upper[0][0] + upper[1][0];
    squares[8] = odd != 0 ? lower[0][3] + lower[1][3] : lower[0][2] + lower[1][2];
  }

  /// Norm factors of q and k with the signs of the gates, in place of the sums of squares; what the
  /// scan multiplies by; and the factors of rows and columns below the diagonal blocks.
  __device__ __forceinline__ void finish_factors(int count) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool is_q = thread >= kChunk;
    const int token = thread % kChunk;
    const ChunkInputs& in = s_.inputs;
    const float2 g = in.gate[token];
    float norm = norm_factor(p_, s_.norm[thread]) * in.sign[token];
    if (is_q) norm *= p_.scale;
    if (token >= count) norm = 0.f;
    s_.norm[thread] = norm;
    const float beta = in.beta[token];
    if (!is_q) s_.column[token] = norm * beta;
    Factors& f = s_.factors;
    const float from_start = decay_from_start(g);
    if (is_q) {
      const float row = decay_between(g, in.gate[max(token / 16 * 16 - 1, 0)]);
      f.query_decay[token] = norm * from_start;
      s_.p_row[token] = norm * row;
      s_.t_row[token] = row;
      return;
    }
    const float2 end = in.gate[kChunk - 1];
    const float sign = in.sign[kChunk - 1];
    f.key_decay[token] = norm * from_start;
    f.update[token] = norm * beta * sign * decay_between(end, g);
    if (token == kChunk - 1) f.decay = sign * from_start;
#pragma unroll 1
    for (int w = token / 16 + 1; w < 4; ++w) {
      const float column = decay_between(in.gate[16 * w - 1], g);
      s_.p_column[columns_before(w) + token] = norm * beta * column;
      s_.t_column[columns_before(w) + token] = column;
    }
  }
  __device__ __forceinline__ static constexpr int columns_before(int w) { return 8 * w * (w - 1); }

  /// A and P, the blocks of this warp's rows one after the other.
  __device__ __forceinline__ void make_blocks(const uint32_t (&k)[kSteps][4],
                                              const uint32_t (&q)[kSteps][4]) {
    const uint32_t tiles = ptx::shared_address(s_.k);
#pragma unroll 1
    for (int block = 0; block <= warp_; ++block) {
      float kk[2][4] = {}, qk[2][4] = {};
      const int row = 16 * block + lane_ % 16;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        uint32_t b[4];
        ptx::load_matrices(b, tiles + static_cast<uint32_t>((s / 4) * kTileBytes) +
                                  piece_offset(row, 2 * (s % 4) + lane_ / 16));
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          ptx::multiply_add(kk[n], k[s], make_uint2(b[n], b[n + 2]));
          ptx::multiply_add(qk[n], q[s], make_uint2(b[n], b[n + 2]));
        }
      }
      if (block < warp_) {
        store_block(kk, qk, block);
      } else {
        store_diagonal_block(kk, qk);
      }
    }
  }

  /// Calls f(n, half, row, column) for each pair of columns of this lane in a block of 16 x 16.
  template <class F>
  __device__ __forceinline__ void for_pairs(int block, F&& f) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        f(n, half, 16 * warp_ + 8 * half + g_, 16 * block + 8 * n + 2 * t_);
      }
    }
  }

  __device__ __forceinline__ void store_block(const float (&kk)[2][4], const float (&qk)[2][4],
                                              int block) {
    const float* columns = s_.p_column + columns_before(warp_);
    for_pairs(block, [&](int n, int half, int i, int j) {
      const float a_row = s_.norm[i];
      const float2 a_column = *reinterpret_cast<const float2*>(&s_.column[j]);
      terms_.store_pair(i, j, kk[n][2 * half] * (a_row * a_column.x),
                        kk[n][2 * half + 1] * (a_row * a_column.y));
      const float row = s_.p_row[i];
      const float2 column = *reinterpret_cast<const float2*>(columns + j);
      store_p(i, j, qk[n][2 * half] * (row * column.x), qk[n][2 * half + 1] * (row * column.y));
    });
  }
  __device__ __forceinline__ void store_diagonal_block(const float (&kk)[2][4],
                                                       const float (&qk)[2][4]) {
    for_pairs(warp_, [&](int n, int half, int i, int j) {
      const float a_row = s_.norm[i];
      const float2 column = *reinterpret_cast<const float2*>(&s_.column[j]);
      const float2 a = make_float2(kk[n][2 * half] * (a_row * column.x),
                                   kk[n][2 * half + 1] * (a_row * column.y));
      float* at = &s_.diagonal[warp_][i % 16][j % 16];
      *reinterpret_cast<float2*>(at) = make_float2(j < i ? a.x : 0.f, j + 1 < i ? a.y : 0.f);
      const float row = s_.norm[kChunk + i];
      const float2 g = s_.inputs.gate[i];
      const float x = qk[n][2 * half] * (row * column.x) * decay_between(g, s_.inputs.gate[j]);
      const float y =
          qk[n][2 * half + 1] * (row * column.y) * decay_between(g, s_.inputs.gate[j + 1]);
      store_p(i, j, j <= i ? x : 0.f, j + 1 <= i ? y : 0.f);
    });
  }
  __device__ __forceinline__ void store_p(int i, int j, float x, float y) const {
    *reinterpret_cast<uint32_t*>(s_.p + pair_offset(i, j)) = bf16_pair(x, y);
  }

  /// Blocks of T' and P above the diagonal, which nothing else writes.
  __device__ __forceinline__ void clear_above_diagonal() {
    const int row = static_cast<int>(threadIdx.x) / 2;
    char* tile = threadIdx.x % 2 == 0 ? s_.t : s_.p;
#pragma unroll 1
    for (int piece = row / 16 * 2 + 2; piece < 8; ++piece) {
      *reinterpret_cast<uint4*>(tile + piece_offset(row, piece)) = make_uint4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ void invert_own_block() {
    float x[16];
    const int first = 16 * warp_;
    invert_diagonal_block(s_.diagonal[warp_], lane_, x);
    const int j = first + lane_ % 16;
    const bool second = lane_ >= 16;
    const float2 gate = s_.inputs.gate[j];
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      const int i = first + 2 * m + (second ? 1 : 0);
      const float t = second ? x[2 * m + 1] : x[2 * m];
      terms_.store(i, j, t);
      const float gated = t * decay_between(s_.inputs.gate[i], gate);
      *reinterpret_cast<__nv_bfloat16*>(s_.t + piece_offset(i, j / 8) + j % 8 * 2) =
          __float2bfloat16_rn(j < i ? gated : 0.f);
    }
  }

  /// Blocks (1, 0) and (3, 2) of T, of which the last merge needs both.
  __device__ __forceinline__ void merge_pair() {
    const int row = 16 * warp_;
    BlockSum x;
    merge_blocks<1>(terms_, row, row, row - 16, row - 16, lane_, x);
    __syncwarp();  // A is read
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        terms_.store_pair(row + 8 * half + g_, row - 16 + 8 * n + 2 * t_, x.value(n, 2 * half),
                          x.value(n, 2 * half + 1));
      }
    }
    store_t(x, row, row - 16);
  }
  /// Rows 32 to 63, columns 0 to 31.
  __device__ __forceinline__ void merge_halves() {
    const int row = 32 + 16 * (warp_ & 1);
    const int column = 16 * (warp_ / 2);
    BlockSum x;
    merge_blocks<2>(terms_, row, 32, 0, column, lane_, x);
    store_t(x, row, column);
  }
  __device__ __forceinline__ void store_t(const BlockSum& x, int row, int column) const {
    const float* columns = s_.t_column + columns_before(row / 16);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = column + 8 * n + 2 * t_;
      const float2 factor = *reinterpret_cast<const float2*>(columns + j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 8 * half + g_;
        const float decay = s_.t_row[i];
        *reinterpret_cast<uint32_t*>(s_.t + pair_offset(i, j)) =
            bf16_pair(x.value(n, 2 * half) * (decay * factor.x),
                      x.value(n, 2 * half + 1) * (decay * factor.y));
      }
    }
  }

  __device__ __forceinline__ void store(int record, int hv) const {
    char* to = record_of(p_, record, hv);
    ptx::store_bulk(to, s_.t, kTileBytes);
    ptx::store_bulk(to + kTileBytes, s_.p, kTileBytes);
    ptx::store_bulk(to + 2 * kTileBytes, &s_.factors, sizeof(Factors));
    ptx::wait_for_bulk_reads();
  }

  const Params& p_;
  const TileMaps& maps_;
  PreparationStorage& s_;
  TermTiles terms_;
  int warp_ = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  int lane_ = static_cast<int>(threadIdx.x) % 32;
  int g_ = lane_ / 4, t_ = lane_ % 4;
};

}  // namespace goldenrule::gpu::prefill
