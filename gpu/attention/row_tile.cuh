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

#include "gpu/attention/decode_config.cuh"
#include "gpu/ptx/functions.cuh"

namespace goldenrule::gpu::attention {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

/// M as it is subtracted: -inf - -inf would be NaN.
__device__ __forceinline__ float finite_largest(float largest) {
  return largest == kMinusInfinity ? 0.f : largest;
}

template <class C>
class RowTile {
 public:
  /// Rows first to first + 15 of all rows of the request, for this warp.
  __device__ __forceinline__ RowTile(const Params& p, const Request& r, int h, int first)
      : p_(p), lane_(static_cast<int>(threadIdx.x) % 32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + lane_ / 4 + 8 * half;
      const int i = p.by_group.quotient(row);
      visible_[half] = i < r.valid ? visible_to(p, r, i) : Range{0, 0};
      const char* from = i < r.queries ? token_row(p.q, 0, r.first_query + i,
                                                   query_head(p, h, row - i * p.group))
                                       : nullptr;
#pragma unroll
      for (int unit = 0; unit < C::kUnits; ++unit) {
        const bool there = from != nullptr && unit * 8 < p.K;
        q_[unit / 2][unit % 2 * 2 + half] =
            there ? *reinterpret_cast<const uint32_t*>(from + 16 * unit + 4 * (lane_ % 4)) : 0;
      }
    }
  }

  /// Tile of keys `start` to start + 63; this warp takes those from `own` on. `every`: all rows see
  /// all of them.
  __device__ __forceinline__ void take(const typename DecodeStorage<C>::Stage& stage,
                                       const uint32_t (&exists)[C::kTile / 32], int32_t start,
                                       int own, bool every) {
    float s[C::kKeys / 8][4];
    scores(stage.k, own, s);
    if (!every) hide(exists, start, own, s);
    weigh(s);
    add_values(stage.v, own, s);
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
        *reinterpret_cast<float2*>(to + 8 * j) = make_float2(o_[j][2 * half], o_[j][2 * half + 1]);
      }
    }
  }

 private:
  /// Matrix `lane / 8` of four 8 x 8 ones, two by two: which of the two along the rows, and along
  /// the units.
  [[nodiscard]] __device__ __forceinline__ int row_of_four(int i) const {
    return lane_ % 8 + 8 * i;
  }

  __device__ __forceinline__ void scores(const Tile<C>& k, int own, float (&s)[C::kKeys / 8][4]) {
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.f;
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; j += 2) {
        uint32_t x[4];
        const int row = own + 8 * j + row_of_four(lane_ / 16);
        const int unit = 2 * step + lane_ / 8 % 2;
        ptx::load_matrices(x, ptx::shared_address(&k.units[Tile<C>::place(row, unit)]));
        Half<C::kType>::multiply_add(s[j], q_[step], make_uint2(x[0], x[1]));
        Half<C::kType>::multiply_add(s[j + 1], q_[step], make_uint2(x[2], x[3]));
      }
    }
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] *= p_.scale_log2;
    }
  }

  /// -inf for what a row does not see, whatever its score is.
  __device__ __forceinline__ void hide(const uint32_t (&exists)[C::kTile / 32], int32_t start,
                                       int own, float (&s)[C::kKeys / 8][4]) const {
#pragma unroll
    for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int k = own + 8 * j + 2 * (lane_ % 4) + e % 2;
        const Range seen = visible_[e / 2];
        const bool visible = (exists[k / 32] >> k % 32 & 1U) != 0 && seen.first <= start + k &&
                             start + k < seen.last;
        s[j][e] = visible ? s[j][e] : kMinusInfinity;
      }
    }
  }

  /// Scores to weights; everything before is rescaled.
  __device__ __forceinline__ void weigh(float (&s)[C::kKeys / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = largest_[half];
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
        largest = fmaxf(largest, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
      const float used = finite_largest(largest);
      const float before = ptx::exp2_approximate(largest_[half] - used);
      largest_[half] = largest;
      float sum = sum_[half] * before;
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[j][e] = ptx::exp2_approximate(s[j][e] - used);
          sum += s[j][e];
        }
      }
      sum_[half] = sum;
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        o_[j][2 * half] *= before;
        o_[j][2 * half + 1] *= before;
      }
    }
  }

  __device__ __forceinline__ void add_values(const Tile<C>& v, int own,
                                             const float (&p)[C::kKeys / 8][4]) {
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step) {
      using H = Half<C::kType>;
      const uint32_t a[4] = {H::pack(p[2 * step][0], p[2 * step][1]),
                             H::pack(p[2 * step][2], p[2 * step][3]),
                             H::pack(p[2 * step + 1][0], p[2 * step + 1][1]),
                             H::pack(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
      for (int j = 0; j < C::kDim / 8; j += 2) {
        uint32_t x[4];
        const int row = own + 16 * step + row_of_four(lane_ / 8 % 2);
        const int unit = j + lane_ / 16;
        ptx::load_transposed_matrices(x, ptx::shared_address(&v.units[Tile<C>::place(row, unit)]));
        H::multiply_add(o_[j], a, make_uint2(x[0], x[1]));
        H::multiply_add(o_[j + 1], a, make_uint2(x[2], x[3]));
      }
    }
  }

  const Params& p_;
  int lane_;
  Range visible_[2];  // of rows lane / 4 and the same + 8
  uint32_t q_[C::kDim / 16][4];
  float largest_[2] = {kMinusInfinity, kMinusInfinity};
  float sum_[2] = {};  // over the keys of this lane
  float o_[C::kDim / 8][4] = {};
};

}  // namespace goldenrule::gpu::attention
