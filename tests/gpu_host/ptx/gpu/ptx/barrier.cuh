// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/barrier.cuh on the CPU. Memory needs no fence here, and nobody counts registers.
#pragma once

#include "gpu/ptx/async_copy.cuh"

namespace goldenrule::gpu::ptx {

inline void initialize_barrier(uint64_t& barrier, uint32_t arrivals) {
  simt::initialize(barrier, arrivals);
}
inline void arrive(uint64_t& barrier) { simt::arrive(barrier, 0); }
inline void arrive_after_copies(uint64_t& barrier) {
  simt::this_thread().copies.arrive_at(barrier);
}
inline void wait_for_phase(uint64_t& barrier, uint32_t parity) {
  simt::this_block().wait_until("a counted barrier",
                                [&] { return simt::phase_has_ended(barrier, parity); });
}
inline bool phase_has_ended(uint64_t& barrier, uint32_t parity) {
  if (simt::phase_has_ended(barrier, parity)) return true;
  simt::this_block().poll("a counted barrier");
  return simt::phase_has_ended(barrier, parity);
}

inline bool phase_is_over(uint64_t& barrier, uint32_t parity) {
  return simt::phase_has_ended(barrier, parity);
}

inline void fence_async_readers() {}
inline void fence_async_global_readers() {}

template <int kThreads>
void synchronize_threads(int barrier, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  simt::this_block().synchronize(barrier, kThreads, {file, line});
}

template <int N>
void keep_registers() {}
template <int N>
void take_registers() {}

}  // namespace goldenrule::gpu::ptx
