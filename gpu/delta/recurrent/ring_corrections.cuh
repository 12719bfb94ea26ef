// SPDX-License-Identifier: Apache-2.0
//
// d in the rings as the warps of the kernels for few tokens hold it: of the rows of a lane, those
// of eight pending tokens on their way in, those of the tokens of the call on their way out.
#pragma once

#include "gpu/common/term_products.cuh"
#include "gpu/delta/recurrent/mtp_block.cuh"
#include "gpu/delta/recurrent/rings.cuh"

namespace goldenrule::gpu::recurrent {

/// The bits of d of pending tokens 2t and 2t + 1 of a group, the rows of the lane; 0 of those that
/// are not there.
template <class C>
struct RingCorrections {
  uint4 bits[2];

  /// Issues the loads. `row`: the first value row of the lane.
  __device__ __forceinline__ void load(const Params& p, BlockPlace at, const RingCursors& cursors,
                                       int row, Fragment lane, int group) {
    const Rings& r = p.ring;
    const int size = element_size(r.d_type);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int token = kMtpTokens * group + 2 * lane.t + c;
      bits[c] = make_uint4(0, 0, 0, 0);
      if (token >= cursors.count) continue;
      bits[c] = load_some_bits<C::kLaneRows>(
          token_row(r.d, cursors.ring, cursors.place(token), at.hv) + row * size, r.d_type,
          r.d_unit >= C::kLaneRows * size);
    }
  }

  /// d[row][token].
  __device__ __forceinline__ void get(Element type, LaneTokens<C>& d) const {
    with_type(type, [&](auto tag) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float4 four = four_from_bits<decltype(tag)>(bits[c]);
        d[0][c] = four.x;
        d[1][c] = four.y;
        if constexpr (C::kLaneRows == 4) {
          d[2][c] = four.z;
          d[3][c] = four.w;
        }
      }
    });
  }
};

/// d of the lane, to the ring.
template <class C>
__device__ __forceinline__ void store_corrections(const Params& p, const MtpPlace& here,
                                                  const RingCursors& cursors,
                                                  const LaneTokens<C>& d) {
  const Rings& r = p.ring;
  const int size = element_size(r.d_type);
  store_columns<C>(here.count, r.d_type, r.d_unit >= C::kLaneRows * size, d, here.lane,
                   [&](int token) {
                     const int place = cursors.place(cursors.count + token);
                     return token_row(r.d, cursors.ring, place, here.at.hv) + here.row0 * size;
                   });
}

/// x += d W of a tile of rows: d of its two rows, W of the lane's column.
template <class C>
__device__ __forceinline__ void add_products(LaneTokens<C>& x, int tile, const PairTerms (&d)[2],
                                             const PairTerms& w) {
  float sum[4] = {};
  multiply_terms(sum, d, w);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[2 * tile + i / 2][i % 2] += sum[i];
}

}  // namespace goldenrule::gpu::recurrent
