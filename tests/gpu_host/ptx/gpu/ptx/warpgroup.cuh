// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/warpgroup.cuh on the CPU.
#pragma once

#include <cstdint>

#include "tests/gpu_host/simt/grid.hpp"

namespace goldenrule::gpu::ptx {

inline void arrange_products() { simt::this_thread().products.arrange(); }
inline void commit_products() { simt::this_thread().products.commit(); }
template <int N>
void wait_for_products_but() {
  simt::this_thread().products.wait_for_all_but(N);
}
template <class T, int N>
void hold(T (&)[N]) {}

template <bool kAdd>
void multiply_64_rows(float (&c)[32], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 64, kAdd, {.registers = a}, b, false);
}
template <bool kAdd>
void multiply_64_shared_rows(float (&c)[32], uint64_t a, uint64_t b) {
  simt::this_thread().products.begin(c, 64, kAdd, {.descriptor = a}, b, false);
}
template <bool kAdd>
void multiply_32_rows(float (&c)[16], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 32, kAdd, {.registers = a}, b, false);
}
template <bool kAdd>
void multiply_128_columns(float (&c)[64], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 128, kAdd, {.registers = a}, b, true);
}

template <bool kAdd>
void multiply_64_columns(float (&c)[32], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 64, kAdd, {.registers = a}, b, true);
}
template <bool kAdd>
void multiply_64_rows_f16(float (&c)[32], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 64, kAdd, {.registers = a, .f16 = true}, b, false);
}
template <bool kAdd>
void multiply_64_columns_f16(float (&c)[32], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 64, kAdd, {.registers = a, .f16 = true}, b, true);
}
template <bool kAdd>
void multiply_128_columns_f16(float (&c)[64], const uint32_t* a, uint64_t b) {
  simt::this_thread().products.begin(c, 128, kAdd, {.registers = a, .f16 = true}, b, true);
}

}  // namespace goldenrule::gpu::ptx
