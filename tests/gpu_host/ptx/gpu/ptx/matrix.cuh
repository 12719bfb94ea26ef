// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/matrix.cuh on the CPU.
#pragma once

#include <cstdint>

#include "tests/gpu_host/simt/matrices.hpp"

namespace goldenrule::gpu::ptx {

inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  simt::multiply_add(c, a, b.x, b.y);
}
inline void multiply_add(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  simt::multiply_add(c, {a[0], a[1], 0, 0}, b, 0);
}
inline void multiply_add_f16(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  simt::multiply_add_f16(c, a, b.x, b.y);
}
inline void load_matrices(uint32_t (&x)[4], uint32_t row_address) {
  simt::load_matrices(x, row_address, false);
}
inline void load_transposed_matrices(uint32_t (&x)[4], uint32_t row_address) {
  simt::load_matrices(x, row_address, true);
}
inline void store_matrices(uint32_t row_address, const uint32_t (&x)[4]) {
  simt::store_matrices(row_address, x, false);
}
inline void store_transposed_matrices(uint32_t row_address, const uint32_t (&x)[4]) {
  simt::store_matrices(row_address, x, true);
}
inline uint32_t transpose(uint32_t x) { return simt::transpose(x); }

}  // namespace goldenrule::gpu::ptx
