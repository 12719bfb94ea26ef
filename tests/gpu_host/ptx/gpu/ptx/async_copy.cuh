// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/async_copy.cuh on the CPU.
#pragma once

#include <cstdint>

#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/shared_memory.hpp"

namespace goldenrule::gpu::ptx {

inline uint32_t shared_address(const void* p) { return simt::shared_address(p); }

inline void copy_async_16(void* shared, const void* global) {
  simt::this_thread().copies.begin(shared, global, 16, 16);
}
inline void copy_async_8(void* shared, const void* global) {
  simt::this_thread().copies.begin(shared, global, 8, 8);
}
inline void copy_async_4(void* shared, const void* global) {
  simt::this_thread().copies.begin(shared, global, 4, 4);
}
inline void copy_async_16(void* shared, const void* global, uint32_t bytes) {
  simt::this_thread().copies.begin(shared, global, 16, bytes);
}

inline void commit_copies() { simt::this_thread().copies.commit(); }
template <int N>
void wait_for_copies_but() {
  simt::this_thread().copies.wait_for_all_but(N);
}
inline void wait_for_copies() { simt::this_thread().copies.wait_for_all(); }

}  // namespace goldenrule::gpu::ptx
