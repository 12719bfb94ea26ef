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
// A warpgroup makes K K^T, Q K^T and the squares for up to two value heads of one query and key
// head, and then what is the heads' own. Warp w owns rows 16 w to 16 w + 15 and works on the blocks
// of 16 x 16 at and below the diagonal. Below the diagonal blocks, e^(G_i - G_j) is the product of
// e^(G_i - G_a) and e^(G_a - G_j), with a the last token before i's block: neither can overflow
// where decays are at most 1, and a block needs 16 + 16 exponentials for 256.
// Length: one class, whose steps hand each other rows in registers and tiles in shared memory.
#pragma once

#include "gpu/delta/prefill/sm90/chunk_gates.cuh"
#include "gpu/delta/prefill/sm90/triangle.cuh"
#include "gpu/ptx/barrier.cuh"
#include "gpu/ptx/registers.cuh"
#include "gpu/ptx/warpgroup.cuh"

namespace goldenrule::gpu::prefill {

class ChunkPreparation {
 public:
  /// `barrier`: a barrier of the block that only the 128 threads of this group use.
  __device__ __forceinline__ ChunkPreparation(const Params& p, PreparationStorage& storage,
                                              int barrier)
      : p_(p), s_(storage), barrier_(barrier) {}

  __device__ __forceinline__ void synchronize() const {
    ptx::synchronize_threads<kGroupThreads>(barrier_);
  }

  /// From rows and inputs, which are there, to prepared, which the copy engine may read when all
  /// threads are back.
  __device__ __forceinline__ void prepare(int heads, int count) {
    {
      float kk[32], qk[32];
      make_products(kk, qk);
      synchronize();  // the squares are there, and the products have read the rows
      finish_factors(heads, count);
      synchronize();
      make_blocks(heads, kk, qk);
    }
    __syncwarp();
    invert_diagonal_blocks(heads);
    synchronize();
    if (warp_ / 2 < heads) merge_pair(warp_ / 2, 16 + 32 * (warp_ % 2));
    synchronize();
#pragma unroll 1
    for (int e = 0; e < heads; ++e) merge_halves(e);
    ptx::fence_async_readers();
  }

 private:
  static constexpr int kSteps = kHeadKeys / 16;
  static constexpr int kGroupThreads = 128;

  /// K K^T, Q K^T, and of Q Q^T the diagonal.
  __device__ __forceinline__ void make_products(float (&kk)[32], float (&qk)[32]) {
    float qq[32];
    const uint64_t k = rows_descriptor(ptx::shared_address(s_.rows.k));
    const uint64_t q = rows_descriptor(ptx::shared_address(s_.rows.q));
    ptx::arrange_products();
    multiply_rows(kk, k, k);
    multiply_rows(qq, q, q);
    multiply_rows(qk, q, k);
    ptx::commit_products();
    ptx::wait_for_products_but<0>();
    ptx::hold(kk);
    ptx::hold(qq);
    ptx::hold(qk);
    store_diagonal(kk, s_.squares);
    store_diagonal(qq, s_.squares + kChunk);
  }
  __device__ __forceinline__ static void multiply_rows(float (&c)[32], uint64_t a, uint64_t b) {
    ptx::multiply_64_shared_rows<false>(c, a, b);
#pragma unroll
    for (int s = 1; s < kSteps; ++s) {
      ptx::multiply_64_shared_rows<true>(c, advanced(a, column_step(s)),
                                         advanced(b, column_step(s)));
    }
  }
  __device__ __forceinline__ void store_diagonal(const float (&c)[32], float* to) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 2 != warp_ || t_ != g_ / 2) continue;
      const int at = 4 * n + 2 * (n % 2);
      to[8 * n + g_] = g_ % 2 != 0 ? c[at + 1] : c[at];
    }
  }

  /// What the scan multiplies by, and the factors of rows and columns of A, T' and P. The norms of
  /// q and k take the signs of the gates.
  __device__ __forceinline__ void finish_factors(int heads, int count) {
    const bool is_q = thread_ >= kChunk;
    const int token = thread_ % kChunk;
    const float length = norm_factor(p_, s_.squares[thread_]);
#pragma unroll 1
    for (int e = 0; e < heads; ++e) {
      const ChunkInputs& in = s_.inputs[e];
      Factors& to_scan = s_.prepared[e].factors;
      HeadFactors& f = s_.factors[e];
      const float2 g = in.gate[token];
      const float norm = token < count ? length * in.sign[token] : 0.f;
      const float from_start = decay_from_start(g);
      if (is_q) {
        const float row = decay_between(g, in.gate[max(token / 16 * 16 - 1, 0)]);
        const float scaled = norm * p_.scale;
        to_scan.query_decay[token] = scaled * from_start;
        f.p_diagonal[token] = scaled;
        f.p_row[token] = scaled * row;
        f.t_row[token] = row;
        continue;
      }
      const float2 end = in.gate[kChunk - 1];
      const float sign = in.sign[kChunk - 1];
      const float column = norm * in.beta[token];
      to_scan.key_decay[token] = norm * from_start;
      to_scan.update[token] = column * sign * decay_between(end, g);
      if (token == kChunk - 1) to_scan.decay = sign * from_start;
      f.a_row[token] = norm;
      f.a_column[token] = column;
#pragma unroll 1
      for (int w = token / 16 + 1; w < 4; ++w) {
        const float decay = decay_between(in.gate[16 * w - 1], g);
        f.p_column[columns_before(w) + token] = column * decay;
        f.t_column[columns_before(w) + token] = decay;
      }
    }
  }
  __device__ __forceinline__ static constexpr int columns_before(int w) { return 8 * w * (w - 1); }

  [[nodiscard]] __device__ __forceinline__ TermTiles terms_of(int e) const {
    return {s_.terms[e].high, s_.terms[e].low};
  }

  /// A and P of this warp's rows, for each head.
  __device__ __forceinline__ void make_blocks(int heads, const float (&kk)[32],
                                              const float (&qk)[32]) {
    float k_own[8], q_own[8];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if (b != warp_) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        k_own[i] = kk[8 * b + i];
        q_own[i] = qk[8 * b + i];
      }
    }
#pragma unroll 1
    for (int e = 0; e < heads; ++e) {
      store_diagonal_block(e, k_own, q_own);
      const HeadFactors& f = s_.factors[e];
      const int row = 16 * warp_ + g_;
      const float a_row[2] = {f.a_row[row], f.a_row[row + 8]};
      const float p_row[2] = {f.p_row[row], f.p_row[row + 8]};
      const TermTiles terms = terms_of(e);
#pragma unroll
      for (int b = 0; b < 3; ++b) {
        if (b >= warp_) continue;
        float a[8], p[8];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int j = 16 * b + 8 * n + 2 * t_;
          scale_block(&kk[8 * b + 4 * n], a_row, pair_at(f.a_column, j), a + 4 * n);
          scale_block(&qk[8 * b + 4 * n], p_row, pair_at(f.p_column + columns_before(warp_), j),
                      p + 4 * n);
        }
        store_terms(terms, a, 16 * warp_, 16 * b, lane_);
        store_block(s_.prepared[e].p(), p, 16 * warp_, 16 * b, lane_);
      }
    }
  }
  __device__ __forceinline__ static float2 pair_at(const float* x, int i) {
    return *reinterpret_cast<const float2*>(x + i);
  }
  /// Rows g and g + 8, columns 2 t and 2 t + 1.
  __device__ __forceinline__ static void scale_block(const float* x, const float (&row)[2],
                                                     float2 column, float* to) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to[2 * half] = x[2 * half] * (row[half] * column.x);
      to[2 * half + 1] = x[2 * half + 1] * (row[half] * column.y);
    }
  }

  /// The block on the diagonal: A in fp32, where the terms of T will lie.
  __device__ __forceinline__ void store_diagonal_block(int e, const float (&kk)[8],
                                                       const float (&qk)[8]) {
    const HeadFactors& f = s_.factors[e];
    const float2* gates = s_.inputs[e].gate + 16 * warp_;
    const int first = 16 * warp_;
    float p[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 8 * half + g_;
      const float a_row = f.a_row[first + i], p_row = f.p_diagonal[first + i];
      const float2 gate = gates[i];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int j = 8 * n + 2 * t_, at = 4 * n + 2 * half;
        const float2 column = pair_at(f.a_column, first + j);
        const float x = kk[at] * (a_row * column.x), y = kk[at + 1] * (a_row * column.y);
        *reinterpret_cast<float2*>(own_block(e, n, i, t_ / 2) + t_ % 2 * 8) =
            make_float2(j < i ? x : 0.f, j + 1 < i ? y : 0.f);
        p[at] = j <= i ? qk[at] * (p_row * column.x) * decay_between(gate, gates[j]) : 0.f;
        p[at + 1] =
            j + 1 <= i ? qk[at + 1] * (p_row * column.y) * decay_between(gate, gates[j + 1]) : 0.f;
      }
    }
    store_block(s_.prepared[e].p(), p, first, first, lane_);
  }
  /// Four fp32 numbers of row i of this warp's diagonal block: columns 8 n + 4 quarter on.
  __device__ __forceinline__ char* own_block(int e, int n, int i, int quarter) const {
    char* tile = n == 0 ? s_.terms[e].high : s_.terms[e].low;
    return tile + piece_offset(16 * warp_ + i, 2 * warp_ + quarter);
  }

  /// Half a warp inverts the block of one head; a lane has a row.
  __device__ __forceinline__ void invert_diagonal_blocks(int heads) {
    const int lane = ptx::hidden(lane_);  // as in triangle.cuh
    const int e = min(lane / 16, heads - 1), i = lane % 16;
    float x[16];
    invert_unit_block(
        [&](int row, int quarter) {
          return *reinterpret_cast<const float4*>(own_block(e, quarter / 2, row, quarter % 2));
        },
        i, x);
    __syncwarp();  // all of A is read
    if (lane / 16 >= heads) return;
    const float2* gates = s_.inputs[e].gate + 16 * warp_;
    const float2 gate = gates[i];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t high[4], low[4], gated[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int j = 8 * half + 2 * m;
        const float4 two = *reinterpret_cast<const float4*>(gates + j);
        const TwoTerms terms = two_terms(x[j], x[j + 1]);
        high[m] = terms.high;
        low[m] = terms.low;
        gated[m] =
            bf16_pair(j < i ? x[j] * decay_between(gate, make_float2(two.x, two.y)) : 0.f,
                      j + 1 < i ? x[j + 1] * decay_between(gate, make_float2(two.z, two.w)) : 0.f);
      }
      const uint32_t at = piece_offset(16 * warp_ + i, 2 * warp_ + half);
      store_piece(s_.terms[e].high + at, high);
      store_piece(s_.terms[e].low + at, low);
      store_piece(
          s_.prepared[e].t() + packed_block(16 * warp_, 16 * warp_) + piece_of_block(i, half),
          gated);
    }
  }

  /// Block (1, 0) or (3, 2) of T, of which the last merge needs both.
  __device__ __forceinline__ void merge_pair(int e, int row) {
    BlockSum x;
    const int lane = ptx::hidden(lane_);
    merge_blocks<1>(terms_of(e), row, row, row - 16, row - 16, lane, x);
    __syncwarp();  // A is read
    float values[8];
    x.values(values);
    store_terms(terms_of(e), values, row, row - 16, lane);
    store_t(e, values, row, row - 16);
  }
  /// Rows 32 to 63, columns 0 to 31.
  __device__ __forceinline__ void merge_halves(int e) {
    const int row = 32 + 16 * (warp_ & 1);
    const int column = 16 * (warp_ / 2);
    BlockSum x;
    merge_blocks<2>(terms_of(e), row, 32, 0, column, ptx::hidden(lane_), x);
    float values[8];
    x.values(values);
    store_t(e, values, row, column);
  }
  __device__ __forceinline__ void store_t(int e, const float (&x)[8], int row, int column) const {
    const HeadFactors& f = s_.factors[e];
    const float t_row[2] = {f.t_row[row + g_], f.t_row[row + 8 + g_]};
    const float* columns = f.t_column + columns_before(row / 16);
    float gated[8];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      scale_block(x + 4 * n, t_row, pair_at(columns, column + 8 * n + 2 * t_), gated + 4 * n);
    }
    store_block(s_.prepared[e].t(), gated, row, column, lane_);
  }

  const Params& p_;
  PreparationStorage& s_;
  int barrier_;
  int thread_ = static_cast<int>(threadIdx.x) % kGroupThreads;
  int warp_ = __shfl_sync(kAllLanes, thread_ / 32, 0);
  int lane_ = thread_ % 32;
  int g_ = lane_ / 4, t_ = lane_ % 4;
};

}  // namespace goldenrule::gpu::prefill
