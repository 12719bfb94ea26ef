// SPDX-License-Identifier: Apache-2.0
//
// Copies from global to shared memory that no register and no instruction waits for (sm_80 on), one
// function per instruction. 16-byte copies pass by L1. The wider ones ask the L2 for whole lines:
// where a warp takes half of each (layout kv), the memory still reads lines.
#pragma once

#include <cstdint>

namespace goldenrule::gpu::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void copy_async_8(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void copy_async_4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}

/// Copies the first `bytes` (0 to 16) and writes zeros to the rest.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, uint32_t bytes) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes)
      : "memory");
}

/// Closes a group of copies of this thread.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Returns when all but the latest N groups of this thread have landed.
template <int N>
__device__ __forceinline__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// Returns when all copies of this thread have landed.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace goldenrule::gpu::ptx
