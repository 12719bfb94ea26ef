// SPDX-License-Identifier: Apache-2.0
//
// Decayed products between the tokens of one chunk,
//
//     kk_ij = sum_c k_ic k_jc D_ijc,   qk_ij = sum_c q_ic k_jc D_ijc,   D_ijc = alpha_j+1,c ..
//     alpha_ic,
//
// on the tensor cores, with decays folded into bf16 operands. D is the product of a factor of row i
// and one of column j only by way of a token between them: with a boundary b, j < b <= i,
//
//     D_ij = (alpha_b .. alpha_i) (alpha_j+1 .. alpha_b-1).
//
// Both factors are products of decays, so neither overflows where decays are at most 1, and a 0 or
// a sign in between is what it should be. 32 tokens are halved five times: the level of size m =
// 16, 8, 4, 2, 1 has the blocks of m x m whose rows are the upper and whose columns are the lower m
// of 2 m tokens, with b between them. Each pair i > j is in one block. (An anchor before both
// tokens needs one level for 16 tokens, but e^(G_b - G_j) then overflows where gates are large.)
//
// Below m = 16 a warp does all blocks of a level of 16 tokens at once, over 64 channels: rows g of
// the left operand are k of the upper tokens, rows 8 + g their q, columns the lower tokens; the
// products of different blocks are dropped. k and q are as they are given: norms multiply the sums.
#pragma once

#include "gpu/delta/prefill/sm90/kda_decays.cuh"
#include "gpu/delta/prefill/sm90/triangle.cuh"

namespace goldenrule::gpu::prefill {

/// Token of a level's row g, and of its column j.
__device__ __forceinline__ constexpr int upper_token(int m, int g) {
  return g / m * 2 * m + m + g % m;
}
__device__ __forceinline__ constexpr int lower_token(int m, int j) { return j / m * 2 * m + j % m; }

/// Makes A, P and the operands of the scan from k, q and gates of any kind.
class KdaLevels {
 public:
  __device__ __forceinline__ KdaLevels(KdaPreparationStorage& storage, KdaPlace at_place)
      : place(at_place),
        s_(storage),
        terms_{storage.operands.terms.high, storage.operands.terms.low} {}

  KdaPlace place;

  __device__ __forceinline__ void make_decays(const Params& p, const ChunkPlace& at) {
    s_.total[place.half][place.pair()] =
        prefill::make_decays(p, at, place, memory(place.half, place.side).decay);
  }

  /// The operands of the scan, and A and P but for the products of the two halves, which it
  /// returns. Norms are on the way, in other warps too.
  [[nodiscard]] __device__ __forceinline__ float4 multiply_tokens() {
    load_tokens();
    float sums[kLevels][4] = {};
    multiply_levels(sums);
    write_between();
    place.synchronize();  // factors, totals, sums of half the channels, and what lies between the
                          // blocks
    float between[4] = {};
    multiply_between(between);
    add_halves(sums);
    place.synchronize();  // the operands between the blocks are read, and k and q are in registers
    write_operands();
    if (place.side == 0) finish_levels(sums);
    ptx::fence_async_readers();
    place.synchronize();  // the sums of half the channels are read
    return make_float4(between[0], between[1], between[2], between[3]);
  }
  __device__ __forceinline__ void finish_between(float4 sums) const {
    const float sum[4] = {sums.x, sums.y, sums.z, sums.w};
    finish_between(sum);
  }

 private:
  static constexpr int kLevels = 4;  ///< m = 8, 4, 2, 1
  static constexpr int kSteps = kHeadKeys / 16;

  [[nodiscard]] __device__ __forceinline__ LevelMemory& memory(int half, int side) const {
    return s_.operands.levels[2 * half + side];
  }

  __device__ __forceinline__ static uint32_t decayed(uint32_t pair, float2 by) {
    return packed(unpacked(pair) * by);
  }

  __device__ __forceinline__ void load_tokens() {
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      const int token = kBlockTokens * place.half + i;
      k_[i] = word(key_tile(s_.chunk, place.side) + place.in_row(token));
      q_[i] = word(query_tile(s_.chunk, place.side) + place.in_row(token));
      alpha_[i] = memory(place.half, place.side).decay[i][place.lane];
    }
    __syncwarp();
  }

  __device__ __forceinline__ void multiply_levels(float (&sums)[kLevels][4]) const {
    multiply_level<8>(sums[0]);
    multiply_level<4>(sums[1]);
    multiply_level<2>(sums[2]);
    multiply_level<1>(sums[3]);
    if (place.side == 0) return;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {  // in this warp's own part
      half_sum(level) = make_float4(sums[level][0], sums[level][1], sums[level][2], sums[level][3]);
    }
  }
  /// Of the 64 channels of side 1.
  [[nodiscard]] __device__ __forceinline__ float4& half_sum(int level) const {
    return reinterpret_cast<float4*>(memory(place.half, 1).rows)[32 * level + place.lane];
  }
  __device__ __forceinline__ void add_halves(float (&sums)[kLevels][4]) const {
    if (place.side != 0) return;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const float4 other = half_sum(level);
      sums[level][0] += other.x;
      sums[level][1] += other.y;
      sums[level][2] += other.z;
      sums[level][3] += other.w;
    }
  }

  template <int m>
  __device__ __forceinline__ void multiply_level(float (&sum)[4]) const {
    char* at = memory(place.half, place.side).rows;
    write_level<m>(at);
    __syncwarp();
    const uint32_t rows =
        ptx::shared_address(at) +
        static_cast<uint32_t>(place.lane % 16 * kLevelRowBytes + place.lane / 16 * 16);
    const uint32_t columns =
        ptx::shared_address(at) +
        static_cast<uint32_t>((kLevelLeftRows + place.lane % 8) * kLevelRowBytes +
                              place.lane / 8 * 16);
#pragma unroll
    for (uint32_t s = 0; s < kSteps / 2; s += 2) {  // 64 channels
      uint32_t a[4], next[4], b[4];
      ptx::load_matrices(a, rows + 32 * s);
      ptx::load_matrices(next, rows + 32 * (s + 1));
      ptx::load_matrices(b, columns + 32 * s);
      ptx::multiply_add(sum, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(sum, next, make_uint2(b[2], b[3]));
    }
    __syncwarp();  // the memory is free for the next level
  }
  template <int m>
  __device__ __forceinline__ void write_level(char* memory) const {
    char* left = memory + 4 * place.lane;
    char* right = left + kLevelLeftRows * kLevelRowBytes;
#pragma unroll
    for (int block = 0; block < 8 / m; ++block) {
      const int middle = (2 * block + 1) * m;
      float2 decay = alpha_[middle];
#pragma unroll
      for (int e = 0; e < m; ++e) {
        const int row = block * m + e;
        if (e > 0) decay = decay * alpha_[middle + e];
        word(left + row * kLevelRowBytes) = decayed(k_[middle + e], decay);
        word(left + (8 + row) * kLevelRowBytes) = decayed(q_[middle + e], decay);
      }
      word(right + (block * m + m - 1) * kLevelRowBytes) = k_[middle - 1];
      decay = alpha_[middle - 1];
#pragma unroll
      for (int e = m - 2; e >= 0; --e) {
        word(right + (block * m + e) * kLevelRowBytes) = decayed(k_[middle - m + e], decay);
        decay = decay * alpha_[middle - m + e];
      }
    }
  }

  /// The level m = 16: rows are k, then q of the second block, in `update`; columns k of the first,
  /// in `corrections`.
  __device__ __forceinline__ void write_between() const {
    float2 decay = make_float2(1.f, 1.f);
    if (place.half == 1) {
      char* rows = s_.chunk.update + place.side * kKdaTileBytes;
#pragma unroll
      for (int i = 0; i < kBlockTokens; ++i) {
        decay = decay * alpha_[i];
        word(rows + place.in_row(i)) = decayed(k_[i], decay);
        word(rows + place.in_row(kBlockTokens + i)) = decayed(q_[i], decay);
      }
    } else {
      char* columns = s_.chunk.corrections + place.side * kBytesOfTile<kBlockTokens>;
#pragma unroll
      for (int i = kBlockTokens - 1; i >= 0; --i) {
        word(columns + place.in_row(i)) = decayed(k_[i], decay);
        decay = decay * alpha_[i];
      }
    }
  }
  __device__ __forceinline__ void multiply_between(float (&sum)[4]) const {
    const RowTiles rows{ptx::shared_address(s_.chunk.update), kKdaTileBytes};
    const RowTiles columns{ptx::shared_address(s_.chunk.corrections), kBytesOfTile<kBlockTokens>};
    float other[4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; s += 2) {
      uint32_t a[4], next[4], b[4];
      rows.load_left(a, 16 * place.half, s, place.lane);
      rows.load_left(next, 16 * place.half, s + 1, place.lane);
      columns.load_right(b, 8 * place.side, s, place.lane);
      ptx::multiply_add(sum, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(other, next, make_uint2(b[2], b[3]));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] += other[e];
  }
  __device__ __forceinline__ void finish_between(const float (&sum)[4]) const {
    const int j = 8 * place.side + 2 * place.t();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kBlockTokens + 8 * half + place.g();
      const float2 x =
          make_float2(sum[2 * half], sum[2 * half + 1]) * make_float2(column(j), column(j + 1));
      if (place.half == 0) {
        const float2 a = x * s_.factors[i].key;
        terms_.store_pair(i, j, a.x, a.y);
      } else {
        store_corrections(s_.chunk, i, kKdaChunk + j, x * s_.factors[i].query);
      }
    }
  }

  /// k_in and q_in over k and q, and k_out.
  __device__ __forceinline__ void write_operands() const {
    const int first = kBlockTokens * place.half;
    float2 decay = place.half == 0 ? make_float2(1.f, 1.f) : s_.total[0][place.pair()];
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      const uint32_t at = place.in_row(first + i);
      decay = decay * alpha_[i];
      word(key_tile(s_.chunk, place.side) + at) = decayed(k_[i], decay * s_.factors[first + i].key);
      word(query_tile(s_.chunk, place.side) + at) =
          decayed(q_[i], decay * s_.factors[first + i].query);
    }
    decay = place.half == 0 ? s_.total[1][place.pair()] : make_float2(1.f, 1.f);
#pragma unroll
    for (int i = kBlockTokens - 1; i >= 0; --i) {
      word(s_.chunk.update + place.side * kKdaTileBytes + place.in_row(first + i)) =
          decayed(k_[i], decay * column(first + i));
      decay = decay * alpha_[i];
    }
  }

  /// A and P within 16 tokens.
  __device__ __forceinline__ void finish_levels(const float (&sums)[kLevels][4]) const {
    finish_level<8>(sums[0]);
    finish_level<4>(sums[1]);
    finish_level<2>(sums[2]);
    finish_level<1>(sums[3]);
    if (place.lane >= kBlockTokens) return;
    const int i = kBlockTokens * place.half + place.lane;
    store_correction(s_.chunk, i, kKdaChunk + i,
                     s_.factors[i].own * s_.factors[i].query * column(i));
  }
  template <int m>
  __device__ __forceinline__ void finish_level(const float (&sum)[4]) const {
    const int first = kBlockTokens * place.half;
    const int g = place.g();
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = 2 * place.t() + e;
      if (g / m != c / m) continue;  // of two blocks
      const int i = upper_token(m, g), j = lower_token(m, c);
      const KdaFactors& row = s_.factors[first + i];
      const float x = column(first + j);
      s_.diagonal[place.half][i][j] = sum[e] * row.key * x;
      store_correction(s_.chunk, first + i, kKdaChunk + first + j, sum[e + 2] * row.query * x);
      store_correction(s_.chunk, first + j, kKdaChunk + first + i, 0.f);
    }
  }
  [[nodiscard]] __device__ __forceinline__ float column(int token) const {
    return s_.factors[token].key * s_.factors[token].beta;
  }

  KdaPreparationStorage& s_;
  TermTiles terms_;
  uint32_t k_[kBlockTokens], q_[kBlockTokens];
  float2 alpha_[kBlockTokens];
};

}  // namespace goldenrule::gpu::prefill
