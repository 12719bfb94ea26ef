// SPDX-License-Identifier: Apache-2.0
//
// Clusters of blocks (sm_90): their barrier, and reads of each other's shared memory, one function
// per instruction. Ranks count the blocks of a cluster; blocks of a one-dimensional grid have the
// rank blockIdx.x modulo the size of the cluster.
#pragma once

#include <cstdint>

#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::ptx {

/// Waits for all threads of the cluster; what they wrote before is seen after it.
__device__ __forceinline__ void synchronize_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

/// The place in the shared memory of block `rank` that `address` is in this block's.
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, uint32_t rank) {
  uint32_t there = address;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}

/// Of an address that address_in_block gave.
__device__ __forceinline__ float4 load_cluster_16(uint32_t address) {
  float4 x{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
#endif
  return x;
}

__device__ __forceinline__ float2 load_cluster_8(uint32_t address) {
  float2 x{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(address)
               : "memory");
#endif
  return x;
}

}  // namespace goldenrule::gpu::ptx
