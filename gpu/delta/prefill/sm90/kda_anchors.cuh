// SPDX-License-Identifier: Apache-2.0
//
// The decayed products of kda_levels.cuh where 16 tokens decay by no more than e^-80 (bounded gates
// do by e^-5 each at most) and keys have a norm of at most 1. Then one factor for rows and one for
// columns does for 16 tokens,
//
//     D_ij = e^(G_i - R) e^(R - G_j),   R: G in front of the 16 tokens,
//
// as columns reach 2^115 and rows 2^-115: both are numbers in bf16, and their relative errors are
// those of any other. R lies in the past of all 16 tokens: with an anchor among them a gate behind
// token i would enter its row. Rows of the first 16 tokens are the operands k_in and q_in of the
// scan. Columns for rows of the second 16 tokens end where those begin, at most 1.
//
// All operands are multiples of k^ and q^, one exponential apart.
#pragma once

#include "gpu/delta/prefill/sm90/kda_decays.cuh"
#include "gpu/delta/prefill/sm90/triangle.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr float kLeastAnchoredBound = -5.f;

/// Makes A, P and the operands of the scan.
class KdaAnchors {
 public:
  __device__ __forceinline__ KdaAnchors(KdaPreparationStorage& storage, KdaPlace at_place)
      : place(at_place),
        s_(storage),
        terms_{storage.operands.terms.high, storage.operands.terms.low} {}

  KdaPlace place;

  [[nodiscard]] __device__ __forceinline__ static bool needs_own_products() { return false; }

  /// Asks for the gates of a chunk.
  __device__ __forceinline__ void fetch(const Params& p, const ChunkPlace& at) {
    fetch_gates(KdaGates(p, at, place), gates_);
  }

  __device__ __forceinline__ void make_decays(const Params& p, const ChunkPlace& at) {
    s_.total[place.half][place.pair()] = exp2_of(make_bounded_decays(p, at, place, gates_, decay_));
  }

  /// Of gates without a bound. Whether those of this thread allow anchors.
  [[nodiscard]] __device__ __forceinline__ bool make_summed_decays(const Params& p,
                                                                   const ChunkPlace& at) {
    bool allowed = false;
    s_.total[place.half][place.pair()] =
        exp2_of(prefill::make_summed_decays(p, at, place, gates_, decay_, allowed));
    return allowed;
  }

  /// Calls `then` where the operands of the scan are there.
  template <class F>
  __device__ __forceinline__ void multiply(F&& then) {
    place.synchronize();  // factors and totals are there
    write_operands();
    ptx::fence_async_readers();
    place.synchronize();
    then();
    float first[4] = {}, between[4] = {}, second[4] = {};
    multiply_rows(first, between, second);
    place.synchronize();  // the terms take the place of operands
    finish_own(0, first);
    finish_own(1, second);
    finish_between(between);
  }

 private:
  static constexpr int kSteps = kHeadKeys / 16;

  [[nodiscard]] __device__ __forceinline__ AnchorOperands& operands() const {
    return s_.operands.anchors;
  }

  /// One code for both halves where they do the same: the cache of instructions is small.
  __device__ __forceinline__ void write_operands() const {
    const int first = kBlockTokens * place.half;
    char* keys = key_tile(s_.chunk, place.side) + first * kTileRowBytes;
    char* queries = query_tile(s_.chunk, place.side) + first * kTileRowBytes;
    char* columns = operands().columns + place.side * kKdaTileBytes + first * kTileRowBytes;
    char* update = s_.chunk.update + place.side * kKdaTileBytes + first * kTileRowBytes;
    char* between = operands().between + place.side * kBytesOfTile<kBlockTokens>;
    char* rows = operands().rows + place.side * kKdaTileBytes;
    const float2 before = s_.total[0][place.pair()];
    float2 to_end = s_.total[1][place.pair()];
    if (place.half == 0) to_end = to_end * before;
#pragma unroll
    for (int i = 0; i < kBlockTokens; ++i) {
      const uint32_t at = place.in_row(i);
      const KdaFactors by = s_.factors[first + i];
      const float2 decay = exp2_of(decay_[i]);
      const float2 k = unpacked(word(keys + at)) * by.key;
      const float2 column = k * exp2_of(decay_[i] * -1.f);
      float2 key = k * decay;
      float2 query = unpacked(word(queries + at)) * by.query * decay;
      word(columns + at) = packed(column);
      word(update + at) = packed(column * (to_end * by.beta));
      if (place.half == 0) {
        word(between + at) = packed(column * before);
      } else {
        word(rows + at) = packed(key);
        word(rows + kBlockTokens * kTileRowBytes + at) = packed(query);
        key = key * before;
        query = query * before;
      }
      word(keys + at) = packed(key);
      word(queries + at) = packed(query);
    }
  }

  /// k or q of the first 16 tokens with their own columns, and of the second with both.
  __device__ __forceinline__ void multiply_rows(float (&first)[4], float (&between)[4],
                                                float (&second)[4]) const {
    const RowTiles inputs{ptx::shared_address(s_.chunk.keys_queries), kTileBytes};
    const RowTiles rows{ptx::shared_address(operands().rows), kKdaTileBytes};
    const RowTiles columns{ptx::shared_address(operands().columns), kKdaTileBytes};
    const RowTiles to_second{ptx::shared_address(operands().between), kBytesOfTile<kBlockTokens>};
    const int lane = place.lane, column = 8 * place.side;
#pragma unroll
    for (int s = 0; s < kSteps; s += 2) {
      uint32_t a[4], next[4], b[4];
      inputs.load_left(a, kKdaChunk * place.half, s, lane);
      inputs.load_left(next, kKdaChunk * place.half, s + 1, lane);
      columns.load_right(b, column, s, lane);
      ptx::multiply_add(first, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(first, next, make_uint2(b[2], b[3]));
      rows.load_left(a, kBlockTokens * place.half, s, lane);
      rows.load_left(next, kBlockTokens * place.half, s + 1, lane);
      columns.load_right(b, kBlockTokens + column, s, lane);
      ptx::multiply_add(second, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(second, next, make_uint2(b[2], b[3]));
      to_second.load_right(b, column, s, lane);
      ptx::multiply_add(between, a, make_uint2(b[0], b[1]));
      ptx::multiply_add(between, next, make_uint2(b[2], b[3]));
    }
  }

  /// A or P of 16 tokens among themselves.
  __device__ __forceinline__ void finish_own(int block, const float (&sum)[4]) const {
    const int j = 8 * place.side + 2 * place.t();
    const int first = kBlockTokens * block;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 8 * half + place.g();
      const float2 x = scaled(sum, half, first + j);
      if (place.half == 0) {
        *reinterpret_cast<float2*>(&s_.diagonal[block][i][j]) = x;
      } else {
        store_corrections(s_.chunk, first + i, kKdaChunk + first + j,
                          make_float2(j <= i ? x.x : 0.f, j + 1 <= i ? x.y : 0.f));
      }
    }
  }
  __device__ __forceinline__ void finish_between(const float (&sum)[4]) const {
    const int j = 8 * place.side + 2 * place.t();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kBlockTokens + 8 * half + place.g();
      const float2 x = scaled(sum, half, j);
      if (place.half == 0) {
        terms_.store_pair(i, j, x.x, x.y);
      } else {
        store_corrections(s_.chunk, i, kKdaChunk + j, x);
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ float2 scaled(const float (&sum)[4], int half,
                                                         int column) const {
    return make_float2(sum[2 * half] * s_.factors[column].beta,
                       sum[2 * half + 1] * s_.factors[column + 1].beta);
  }

  KdaPreparationStorage& s_;
  TermTiles terms_;
  uint32_t gates_[kBlockTokens];  ///< of the next chunk, as they lie in memory
  float2 decay_[kBlockTokens];    ///< over all tokens up to this one, base 2
};

}  // namespace goldenrule::gpu::prefill
