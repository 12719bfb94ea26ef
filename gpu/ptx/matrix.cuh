// SPDX-License-Identifier: Apache-2.0
//
// Matrix instructions of a warp (sm_80 on), one function per instruction. With g = lane / 4 and
// t = lane % 4, a lane holds
//   A 16 x 16:  a[0], a[1]: rows g and g + 8, columns 2t and 2t + 1; a[2], a[3]: the same + 8
//   B 16 x 8:   b.x: rows 2t and 2t + 1 of column g; b.y: the same + 8
//   C 16 x 8:   c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8
#pragma once

#include <cstdint>

namespace goldenrule::gpu::ptx {

/// C += A B, of bf16. Products are exact; their sum is truncated, not rounded to nearest.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

/// The same with the first 8 columns of A and rows of B.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

/// The same of f16.
__device__ __forceinline__ void multiply_add_f16(float (&c)[4], const uint32_t (&a)[4], uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory: lane 8 m + r names the 16 bytes of
/// row r of matrix m; x[m] is row g, columns 2t and 2t + 1 of matrix m.
__device__ __forceinline__ void load_matrices(uint32_t (&x)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row_address)
               : "memory");
}

/// The same, transposed: x[m] is rows 2t and 2t + 1, column g of matrix m.
__device__ __forceinline__ void load_transposed_matrices(uint32_t (&x)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row_address)
               : "memory");
}

/// Stores what load_transposed_matrices would load (sm_90 on).
__device__ __forceinline__ void store_transposed_matrices(uint32_t row_address,
                                                          const uint32_t (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
      : "memory");
#endif
}

/// Stores what load_matrices would load (sm_90 on).
__device__ __forceinline__ void store_matrices(uint32_t row_address, const uint32_t (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
#endif
}

/// An 8 x 8 matrix of 16-bit elements, row g and columns 2t and 2t + 1 a lane, transposed.
__device__ __forceinline__ uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace goldenrule::gpu::ptx
