// SPDX-License-Identifier: Apache-2.0
//
// The rows of one tile in the registers of a warp: queries, largest scores, sums and outputs, over
// one tile of keys after the other. With x = scale log2(e) <q, k> and M the largest x so far,
//
//     p = 2^(x - M)      l = sum of p      O = sum of round(p) v
//
// where all that was added before a larger M came is multiplied by 2^(M_before - M). A row that has
// seen no key has M = -inf, l = 0 and O = 0, and a tile of which it sees no key changes nothing.
#pragma once

#include "gpu/attention/block.cuh"
#include "gpu/attention/sm90/decode_config.cuh"
#include "gpu/ptx/functions.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::attention {

template <class C>
class RowTile {
 public:
  /// Rows first to first + 15 of all rows of the request, for this warp.
  __device__ __forceinline__ RowTile(const Params& p, const Request& r, int h, int first)
      : p_(p), lane_(ptx::hidden(static_cast<int>(threadIdx.x) % 32)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + lane_ / 4 + 8 * half;
      const int i = p.by_group.quotient(row);
      visible_[half] = i < r.valid ? visible_to(p, r, i) : Range{0, 0};
      const char* from =
          i < r.queries ? token_row(p.q, 0, r.first_query + i, query_head(p, h, row - i * p.group))
                        : nullptr;
#pragma unroll
      for (int unit = 0; unit < C::kUnits; ++unit) {
        const bool there = from != nullptr && unit * 8 < p.K;
        q_[unit / 2 * 4 + unit % 2 * 2 + half] =
            there ? *reinterpret_cast<const uint32_t*>(from + 16 * unit + 4 * (lane_ % 4)) : 0;
      }
    }
  }

  /// Tile of keys `start` to start + 63; this warp takes those from `own` on. `every`: all rows see
  /// all of them.
  __device__ __forceinline__ void take(const typename DecodeStorage<C>::Stage& stage,
                                       const uint32_t (&exist)[C::kTile / 32], int32_t start,
                                       int own, bool every) {
    float s[kScores];
    scores(stage.k, own, s);
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] *= p_.scale_log2;
    if (!every) hide(exist, start, own, s);
    weigh(s);
    add_values(stage.v, own, s);
  }
  /// Products of a warpgroup run on behind take(), and read the tile until this.
  __device__ __forceinline__ void finish() {
    if constexpr (C::kWarpgroup) {
      ptx::wait_for_products_but<0>();
      ptx::hold(o_);
    }
  }

  /// For a thread that has the same rows of other keys.
  __device__ __forceinline__ void hand_over(typename DecodeStorage<C>::Partials& to) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) to.of_team[i][thread] = o_[i];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to.of_team[C::kDim / 2 + half][thread] = largest_[half];
      to.of_team[C::kDim / 2 + 2 + half][thread] = sum_[half];
    }
  }
  __device__ __forceinline__ void add(const typename DecodeStorage<C>::Partials& from) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float other = from.of_team[C::kDim / 2 + half][thread];
      const float largest = fmaxf(largest_[half], other), used = finite_largest(largest);
      const float own_weight = ptx::exp2_approximate(largest_[half] - used);
      const float weight = ptx::exp2_approximate(other - used);
      largest_[half] = largest;
      sum_[half] =
          fmaf(weight, from.of_team[C::kDim / 2 + 2 + half][thread], own_weight * sum_[half]);
#pragma unroll
      for (int i = 2 * half; i < C::kDim / 2; i += 4) {
        o_[i] = fmaf(weight, from.of_team[i][thread], own_weight * o_[i]);
        o_[i + 1] = fmaf(weight, from.of_team[i + 1][thread], own_weight * o_[i + 1]);
      }
    }
  }

  /// Writes the 16 rows to `o` and `sums`, rows `at` and on.
  __device__ __forceinline__ void store(DecodeStorage<C>& s, int at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      const int row = at + lane_ / 4 + 8 * half;
      if (lane_ % 4 == 0) s.sums[row] = make_float2(largest_[half], sum);
      float* to = &s.partials.o[row * C::kPartialRow + 2 * (lane_ % 4)];
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(o_[4 * j + 2 * half], o_[4 * j + 2 * half + 1]);
      }
    }
  }

 private:
  /// Of a lane: number 4 j + e is of key 8 j + 2 (lane % 4) + e % 2 and of row lane / 4, with e of
  /// 2 and 3 of row lane / 4 + 8; o_ likewise, of columns.
  static constexpr int kScores = C::kKeys / 2;
  using H = Half<C::kType>;

  __device__ __forceinline__ void scores(const Tile<C>& k, int own, float (&s)[kScores]) {
    if constexpr (C::kWarpgroup) {
      const uint64_t keys = k.descriptor();
      ptx::hold(q_);
      ptx::arrange_products();
      H::template multiply_rows<false>(s, q_, keys);
#pragma unroll
      for (int step = 1; step < C::kDim / 16; ++step) {
        H::template multiply_rows<true>(s, q_ + 4 * step, keys + Tile<C>::along_rows(step));
      }
      ptx::commit_products();
      ptx::wait_for_products_but<0>();
      ptx::hold(s);
    } else {
      scores_of_warp(k, own, s);
    }
  }

  /// Lanes name rows of four 8 x 8 matrices, two by two along the keys and along the units.
  __device__ __forceinline__ void scores_of_warp(const Tile<C>& k, int own, float (&s)[kScores]) {
    float c[C::kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      const uint32_t q[4] = {q_[4 * step], q_[4 * step + 1], q_[4 * step + 2], q_[4 * step + 3]};
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; j += 2) {
        uint32_t x[4];
        const int row = own + 8 * j + lane_ % 8 + 8 * (lane_ / 16);
        const int unit = 2 * step + lane_ / 8 % 2;
        ptx::load_matrices(x, ptx::shared_address(&k.units[Tile<C>::place(row, unit)]));
        H::multiply_add(c[j], q, make_uint2(x[0], x[1]));
        H::multiply_add(c[j + 1], q, make_uint2(x[2], x[3]));
      }
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = c[i / 4][i % 4];
  }

  /// -inf for what a row does not see, whatever its score is.
  __device__ __forceinline__ void hide(const uint32_t (&exist)[C::kTile / 32], int32_t start,
                                       int own, float (&s)[kScores]) const {
    // Of this lane's keys: they are number 8 j and 8 j + 1 from `key` on, within a tile.
    const int key = own + 2 * (lane_ % 4);
    constexpr int kWords = (C::kKeys + 31) / 32;
    uint32_t there[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) there[i] = exist[own / 32 + i] >> key % 32;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int k = 8 * (i / 4) + i % 2;
      const Range seen = visible_[i % 4 / 2];
      const bool visible = (there[k / 32] >> k % 32 & 1U) != 0 && seen.first - start - key <= k &&
                           k < seen.last - start - key;
      s[i] = visible ? s[i] : kMinusInfinity;
    }
  }

  /// Scores to weights; everything before is rescaled.
  __device__ __forceinline__ void weigh(float (&s)[kScores]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = largest_[half];
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
      const float used = finite_largest(largest);
      const float before = ptx::exp2_approximate(largest_[half] - used);
      largest_[half] = largest;
      float sum = sum_[half] * before;
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
        s[i] = ptx::exp2_approximate(s[i] - used);
        s[i + 1] = ptx::exp2_approximate(s[i + 1] - used);
        sum += s[i] + s[i + 1];
      }
      sum_[half] = sum;
#pragma unroll
      for (int i = 2 * half; i < C::kDim / 2; i += 4) {
        o_[i] *= before;
        o_[i + 1] *= before;
      }
    }
  }

  __device__ __forceinline__ void add_values(const Tile<C>& v, int own, const float (&s)[kScores]) {
    uint32_t p[kScores / 2];
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) p[i] = H::pack(s[2 * i], s[2 * i + 1]);
    if constexpr (C::kWarpgroup) {
      const uint64_t values = v.descriptor();
      ptx::hold(p);
      ptx::hold(o_);
      ptx::arrange_products();
#pragma unroll
      for (int step = 0; step < C::kKeys / 16; ++step) {
        H::multiply_columns(o_, p + 4 * step, values + Tile<C>::over_rows(step));
      }
      ptx::commit_products();
    } else {
      add_values_of_warp(v, own, p);
    }
  }

  __device__ __forceinline__ void add_values_of_warp(const Tile<C>& v, int own,
                                                     const uint32_t (&p)[kScores / 2]) {
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step) {
      const uint32_t a[4] = {p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3]};
#pragma unroll
      for (int j = 0; j < C::kDim / 8; j += 2) {
        uint32_t x[4];
        const int row = own + 16 * step + lane_ % 8 + 8 * (lane_ / 8 % 2);
        const int unit = j + lane_ / 16;
        ptx::load_transposed_matrices(x, ptx::shared_address(&v.units[Tile<C>::place(row, unit)]));
        float c[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = o_[4 * j + i];
        H::multiply_add(c[0], a, make_uint2(x[0], x[1]));
        H::multiply_add(c[1], a, make_uint2(x[2], x[3]));
#pragma unroll
        for (int i = 0; i < 8; ++i) o_[4 * j + i] = c[i / 4][i % 4];
      }
    }
  }

  const Params& p_;
  int lane_;                 // hidden: what follows from it is no constant of other row tiles
  Range visible_[2];         // of rows lane / 4 and the same + 8
  uint32_t q_[C::kDim / 4];  // four registers for 16 elements: left operands
  float largest_[2] = {kMinusInfinity, kMinusInfinity};
  float sum_[2] = {};  // over the keys of this lane
  float o_[C::kDim / 2] = {};
};

}  // namespace goldenrule::gpu::attention
