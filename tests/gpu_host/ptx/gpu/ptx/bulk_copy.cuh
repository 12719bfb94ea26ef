// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/bulk_copy.cuh on the CPU.
#pragma once

#include "gpu/ptx/barrier.cuh"
#include "tests/gpu_host/simt/tensor_map.hpp"

namespace goldenrule::gpu::ptx {

inline void arrive_expecting(uint64_t& barrier, uint32_t bytes) { simt::arrive(barrier, bytes); }

inline void copy_bulk(void* shared, const void* global, uint32_t bytes, uint64_t& barrier) {
  simt::begin_bulk_copy(shared, global, bytes, barrier);
}
inline void copy_box(void* shared, const void* map, int inner, int middle, int outer,
                     uint64_t& barrier) {
  simt::begin_box_copy(shared, map, inner, middle, outer, barrier);
}

inline void store_box(const void* map, int inner, int middle, int outer, const void* shared) {
  simt::begin_box_store(map, inner, middle, outer, shared);
}
inline void store_bulk(void* global, const void* shared, uint32_t bytes) {
  simt::begin_bulk_store(global, shared, bytes);
}
inline void wait_for_bulk_reads() { simt::this_thread().stores.wait_for_reads(); }
inline void wait_for_bulk_stores() { simt::this_thread().stores.wait_for_stores(); }
template <int N>
void wait_for_bulk_stores_but() {
  simt::this_thread().stores.wait_for_stores(N);
}
inline void prefetch_box(const void* /*map*/, int /*inner*/, int /*middle*/, int /*outer*/) {}
inline void commit_bulk_stores() { simt::this_thread().stores.commit(); }

}  // namespace goldenrule::gpu::ptx
