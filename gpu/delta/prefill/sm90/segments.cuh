// SPDX-License-Identifier: Apache-2.0
//
// Segments on the device (segments.hpp): their list, and how N, M and start states lie in the
// workspace. What is only handed from registers to the same registers lies as they do; M lies as
// the copy engine hands it to the tensor cores, in pieces of as many rows as a chunk has tokens,
// each of two tiles of the high terms and two of the low ones.
#pragma once

#include "gpu/delta/prefill/sequences.cuh"
#include "gpu/delta/prefill/state_registers.cuh"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/delta/prefill/tile.cuh"

namespace goldenrule::gpu::prefill {

/// The list begins behind its head.
__device__ __forceinline__ SegmentPlace* segment_list(const Params& p) {
  return reinterpret_cast<SegmentPlace*>(p.segments + 1);
}

/// Puts the segments of sequence n where those of the sequences before it end, by one warp; the
/// last sequence says how many there are.
__device__ __forceinline__ void list_segments(const Params& p, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int segments = segments_of(p.split, tokens_of(p, n).count);
  if (segments == 1 && n != p.N - 1) return;
  int before = 0;
  for (int m = lane; m < n; m += 32) {
    const int others = segments_of(p.split, tokens_of(p, m).count);
    before += others > 1 ? others : 0;
  }
  // No sum overflows where bounds ascend; of others no place outside the list is used.
  before = min(max(__reduce_add_sync(kAllLanes, before), 0), p.most_segments);
  const int count = min(segments == 1 ? 0 : segments, p.most_segments - before);
  if (lane < count) segment_list(p)[before + lane] = {n, lane, segments};
  if (lane == 0 && n == p.N - 1) p.segments->count = before + count;
}

/// What is kept of segment `place` of value head hv.
__device__ __forceinline__ char* segment_of(const Params& p, int place, int hv) {
  return p.maps + (static_cast<int64_t>(place) * p.HV + hv) * segment_bytes(p.V);
}
/// 64 values of N.
__device__ __forceinline__ char* ends_of(const Params& p, int place, int hv, int first_value) {
  return segment_of(p, place, hv) + int64_t{first_value} * kHeadKeys * 4;
}
/// M, or 64 values of the start state.
__device__ __forceinline__ char* map_of(const Params& p, int place, int hv, int first_value = 0) {
  return ends_of(p, place, hv, p.V + first_value);
}

/// Registers of a group of 128 threads, of which this is number `thread`.
__device__ __forceinline__ void keep_registers(char* to, int thread,
                                               const float (&state)[kStateRegisters]) {
#pragma unroll
  for (int i = 0; i < kStateRegisters; i += 4) {
    *reinterpret_cast<float4*>(to + (i / 4 * 128 + thread) * 16) =
        make_float4(state[i], state[i + 1], state[i + 2], state[i + 3]);
  }
}
__device__ __forceinline__ void fetch_registers(const char* from, int thread,
                                                float (&state)[kStateRegisters]) {
#pragma unroll
  for (int i = 0; i < kStateRegisters; i += 4) {
    const float4 x = *reinterpret_cast<const float4*>(from + (i / 4 * 128 + thread) * 16);
    state[i] = x.x;
    state[i + 1] = x.y;
    state[i + 2] = x.z;
    state[i + 3] = x.w;
  }
}

/// Rows of the identity, the values of which this lane holds being rows.
__device__ __forceinline__ void load_identity(StateLane lane, float (&state)[kStateRegisters]) {
#pragma unroll
  for (int i = 0; i < kStateRegisters; ++i) {
    const int row = lane.first_value + i % 4 / 2 * 8;
    const int channel = lane.first_channel + i / 4 * 8 + i % 2;
    state[i] = row == channel ? 1.f : 0.f;
  }
}

template <int kRows>
inline constexpr int kPieceTermBytes = 2 * kBytesOfTile<kRows>;  ///< of a piece of M
template <int kRows>
inline constexpr int kPieces = kHeadKeys / kRows;

/// Hands out four words of each lane of a quad: word i of lane t becomes word t of lane i.
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4], int t) {
#pragma unroll
  for (int side = 1; side <= 2; side *= 2) {
    const bool upper = (t & side) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t& low = x[side == 1 ? 2 * i : i];
      uint32_t& high = x[side == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(kAllLanes, upper ? low : high, side);
      (upper ? low : high) = other;
    }
  }
}

/// Rows of M by who holds them as values: pieces of 16 bytes, which the four lanes of a row put
/// together.
template <int kRows>
__device__ __forceinline__ void keep_map(char* map, StateLane lane,
                                         const float (&state)[kStateRegisters]) {
  const int t = lane.first_channel / 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane.first_value + 8 * half;
    char* to = map + row / kRows * (2 * kPieceTermBytes<kRows>);
#pragma unroll
    for (int n = 0; n < kHeadKeys / 8; n += 4) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (n + i) + 2 * half;
        const TwoTerms x = two_terms(state[at], state[at + 1]);
        high[i] = x.high;
        low[i] = x.low;
      }
      transpose_quad(high, t);
      transpose_quad(low, t);
      char* at = to + n / 8 * kBytesOfTile<kRows> + piece_offset(row % kRows, n % 8 + t);
      ptx::store_16(at, make_uint4(high[0], high[1], high[2], high[3]));
      ptx::store_16(at + kPieceTermBytes<kRows>, make_uint4(low[0], low[1], low[2], low[3]));
    }
  }
}

}  // namespace goldenrule::gpu::prefill
