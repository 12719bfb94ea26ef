// SPDX-License-Identifier: Apache-2.0
//
// Barriers between the warps of a block, one function per instruction: counted barriers in shared
// memory (mbarrier, sm_90), the fence between ordinary accesses and those of the tensor cores, and
// how many registers a warpgroup keeps.
#pragma once

#include <cstdint>

#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::ptx {

/// A phase of `barrier` ends when this many have arrived.
__device__ __forceinline__ void initialize_barrier(uint64_t& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void arrive(uint64_t& barrier) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(
                   shared_address(&barrier))
               : "memory");
}

/// Arrives when all copies that this thread has begun (async_copy.cuh) have landed, without waiting
/// for them. What else it wrote is not seen by who waits for the phase.
__device__ __forceinline__ void arrive_after_copies(uint64_t& barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
      : "memory");
}

/// Whether the phase of this parity has ended; waits for a while if it has not.
__device__ __forceinline__ bool phase_has_ended(uint64_t& barrier, uint32_t parity) {
  uint32_t ended = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;}"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
#endif
  return ended != 0;
}

/// The same without waiting.
__device__ __forceinline__ bool phase_is_over(uint64_t& barrier, uint32_t parity) {
  uint32_t ended = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred ended;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;}"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
#endif
  return ended != 0;
}

__device__ __forceinline__ void wait_for_phase(uint64_t& barrier, uint32_t parity) {
  while (!phase_has_ended(barrier, parity)) {
  }
}

/// What was written to shared memory so far, by this thread or by others before a barrier that it
/// has passed, is seen by products and bulk copies that come after.
__device__ __forceinline__ void fence_async_readers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The same for global memory.
__device__ __forceinline__ void fence_async_global_readers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/// Waits until kThreads threads have come to barrier `barrier` (1 to 15) of this block.
template <int kThreads>
__device__ __forceinline__ void synchronize_threads(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

/// Gives registers of this warpgroup back, so that each thread keeps N.
template <int N>
__device__ __forceinline__ void keep_registers() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/// Waits until each thread of this warpgroup can have N registers.
template <int N>
__device__ __forceinline__ void take_registers() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

}  // namespace goldenrule::gpu::ptx
