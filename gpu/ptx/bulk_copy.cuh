// SPDX-License-Identifier: Apache-2.0
//
// Copies of whole blocks of memory that one thread begins (sm_90), one function per instruction.
// Addresses and sizes are multiples of 16 bytes.
#pragma once

#include "gpu/ptx/barrier.cuh"

namespace goldenrule::gpu::ptx {

/// Arrives, and lets the phase end only after `bytes` more bytes have landed.
__device__ __forceinline__ void arrive_expecting(uint64_t& barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
          shared_address(&barrier)),
      "r"(bytes)
      : "memory");
#endif
}

/// Global to shared memory; the bytes count towards the phase of `barrier`.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, uint32_t bytes,
                                          uint64_t& barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
#endif
}

/// One box of a tensor of three axes, whose map is a kernel's parameter, from (inner, middle,
/// outer) on. What lies outside the tensor is written as zeros.
__device__ __forceinline__ void copy_box(void* shared, const void* map, int inner, int middle,
                                         int outer, uint64_t& barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(middle), "r"(outer), "r"(shared_address(&barrier))
      : "memory");
#endif
}

/// Asks for one box of a tensor of three axes in L2.
__device__ __forceinline__ void prefetch_box(const void* map, int inner, int middle, int outer) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(inner), "r"(middle), "r"(outer)
               : "memory");
#endif
}

/// One box from shared memory to a tensor of three axes.
__device__ __forceinline__ void store_box(const void* map, int inner, int middle, int outer,
                                          const void* shared) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
          map),
      "r"(inner), "r"(middle), "r"(outer), "r"(shared_address(shared))
      : "memory");
#endif
}

/// Shared to global memory.
__device__ __forceinline__ void store_bulk(void* global, const void* shared, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#endif
}

/// Returns when the bulk stores of this thread that were committed have read their source.
__device__ __forceinline__ void wait_for_bulk_reads() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

/// Returns when the bulk stores of this thread are complete, and visible to it, but for the N
/// groups closed last.
template <int N>
__device__ __forceinline__ void wait_for_bulk_stores_but() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
#endif
}
/// Returns when the bulk stores of this thread are complete, and visible to it.
__device__ __forceinline__ void wait_for_bulk_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

/// Closes a group of bulk stores of this thread.
__device__ __forceinline__ void commit_bulk_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

}  // namespace goldenrule::gpu::ptx
