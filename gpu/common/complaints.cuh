// SPDX-License-Identifier: Apache-2.0
//
// What a checking kernel says: for every kind of complaint how many there are, and the lowest
// place. The report of a group is these pairs in the order of its kinds.
#pragma once

#include <cstdint>

namespace goldenrule::gpu {

struct Tally {
  unsigned long long count;
  unsigned long long first;
};
inline constexpr unsigned long long kNoPlace = ~0ULL;

/// Barriers inside; Kinds is at most the number of threads.
template <int Kinds>
__device__ __forceinline__ void begin_complaints(Tally (&tallies)[Kinds]) {
  if (threadIdx.x < Kinds) tallies[threadIdx.x] = {0, kNoPlace};
  __syncthreads();
}

__device__ __forceinline__ void complain(Tally& tally, int64_t at) {
  atomicAdd(&tally.count, 1ULL);
  atomicMin(&tally.first, static_cast<unsigned long long>(at));
}

/// Writes the pairs "count, lowest place or -1" of the first `kinds` kinds.
template <int Kinds, class Report>
__device__ __forceinline__ void end_complaints(const Tally (&tallies)[Kinds], Report* report,
                                               int kinds = Kinds) {
  static_assert(sizeof(Report) == 2 * Kinds * sizeof(int64_t),
                "the report is one pair per kind, in the order of the kinds");
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < kinds) {
    const Tally tally = tallies[threadIdx.x];
    int64_t* out = reinterpret_cast<int64_t*>(report) + 2 * threadIdx.x;
    out[0] = static_cast<int64_t>(tally.count);
    out[1] = tally.first == kNoPlace ? -1 : static_cast<int64_t>(tally.first);
  }
}

}  // namespace goldenrule::gpu
