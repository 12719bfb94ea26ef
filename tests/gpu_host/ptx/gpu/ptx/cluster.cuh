// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/cluster.cuh on the CPU. An address in another block is a place in the window with the
// block's rank above it.
#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::ptx {

inline constexpr uint32_t kRankShift = 24;

inline void synchronize_cluster() { simt::this_block().grid().synchronize_cluster(); }

inline uint32_t address_in_block(uint32_t address, uint32_t rank) {
  return address | rank << kRankShift;
}

template <class T>
T load_cluster(uint32_t address) {
  const uint32_t at = address & ((1U << kRankShift) - 1);
  if (at % sizeof(T) != 0) simt::fail("a load from a cluster is not aligned");
  T x;
  std::memcpy(&x, simt::this_block().grid().shared_of(address >> kRankShift) + at, sizeof x);
  return x;
}
inline float4 load_cluster_16(uint32_t address) { return load_cluster<float4>(address); }
inline float2 load_cluster_8(uint32_t address) { return load_cluster<float2>(address); }

}  // namespace goldenrule::gpu::ptx
