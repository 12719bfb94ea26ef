// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of a warpgroup, four consecutive warps from a multiple of four on (sm_90a), one
// function per instruction. They run asynchronously:
//
//     hold(registers); arrange_products(); multiply_...(..) any number; commit_products();
//     wait_for_products_but<N>(); hold(results);
//
// Between commit and wait no register that takes part may be touched. `hold` says so to the
// compiler, which sees neither that the instructions run on nor that the wait ends them.
//
// With g = lane / 4 and t = lane % 4, warp w of the group holds of a result C [64 x N], 32-bit,
//     c[4 n], c[4 n + 1]: row 16 w + g, columns 8 n + 2 t and 8 n + 2 t + 1;
//     c[4 n + 2], c[4 n + 3]: the same of row 16 w + g + 8,
// and of an operand A [64 x 16] of bf16 in registers
//     a[0], a[1]: rows 16 w + g and 16 w + g + 8, columns 2 t and 2 t + 1; a[2], a[3]: the same
//     + 8.
// Operands in shared memory are named by a descriptor. Products of bf16 are exact in fp32; sums are
// truncated, not rounded to nearest.
#pragma once

#include <cstdint>

namespace goldenrule::gpu::ptx {

/// Orders what was written to registers before the products that read them.
__device__ __forceinline__ void arrange_products() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/// Closes a group of products.
__device__ __forceinline__ void commit_products() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/// Returns when all but the latest N groups are done.
template <int N>
__device__ __forceinline__ void wait_for_products_but() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

/// No instruction: values before and after this point are different ones to the compiler.
template <int N>
__device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N>
__device__ __forceinline__ void hold(uint32_t (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// The registers of C as operands of an instruction, and their names in its text.
#define EIGHT(c, i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define OPERANDS_16(c) EIGHT(c, 0), EIGHT(c, 8)
#define OPERANDS_32(c) OPERANDS_16(c), EIGHT(c, 16), EIGHT(c, 24)
#define OPERANDS_64(c) OPERANDS_32(c), EIGHT(c, 32), EIGHT(c, 40), EIGHT(c, 48), EIGHT(c, 56)
#define NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_32 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_64                                                     \
  NAMES_32                                                           \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// wgmma of `columns` columns, for which a thread holds n registers of C. `rest`: the names of A, of
// B, and of `add`, which is operand `add`; then how B lies.
#if __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA(type, columns, n, add, rest, ...)                                            \
  asm volatile("{.reg .pred add; setp.ne.b32 add, %" #add                                  \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type \
               " {" NAMES_##n "}, " rest ";}"                                              \
               : OPERANDS_##n(c)                                                           \
               : __VA_ARGS__, "l"(b), "n"(kAdd ? 1 : 0))
#else
#define WGMMA(...)
#endif
#define ROWS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/// C (+)= A B for 64 columns, B contiguous along the inner dimension of the product. `kAdd` false:
/// what C held is not read.
template <bool kAdd>
__device__ __forceinline__ void multiply_64_rows(float (&c)[32], const uint32_t* a, uint64_t b) {
  WGMMA("bf16", 64, 32, 37, "{%32,%33,%34,%35}, %36, add, 1, 1, 0", ROWS);
}

/// The same with A in shared memory, contiguous along the inner dimension.
template <bool kAdd>
__device__ __forceinline__ void multiply_64_shared_rows(float (&c)[32], uint64_t a, uint64_t b) {
  WGMMA("bf16", 64, 32, 34, "%32, %33, add, 1, 1, 0, 0", "l"(a));
}

/// C (+)= A B for 32 columns, A in registers.
template <bool kAdd>
__device__ __forceinline__ void multiply_32_rows(float (&c)[16], const uint32_t* a, uint64_t b) {
  WGMMA("bf16", 32, 16, 21, "{%16,%17,%18,%19}, %20, add, 1, 1, 0", ROWS);
}

/// C (+)= A B for 128 columns, B contiguous along the columns of the result.
template <bool kAdd>
__device__ __forceinline__ void multiply_128_columns(float (&c)[64], const uint32_t* a,
                                                     uint64_t b) {
  WGMMA("bf16", 128, 64, 69, "{%64,%65,%66,%67}, %68, add, 1, 1, 1", ROWS);
}

/// The same for 64 columns.
template <bool kAdd>
__device__ __forceinline__ void multiply_64_columns(float (&c)[32], const uint32_t* a, uint64_t b) {
  WGMMA("bf16", 64, 32, 37, "{%32,%33,%34,%35}, %36, add, 1, 1, 1", ROWS);
}

/// multiply_64_rows of f16.
template <bool kAdd>
__device__ __forceinline__ void multiply_64_rows_f16(float (&c)[32], const uint32_t* a,
                                                     uint64_t b) {
  WGMMA("f16", 64, 32, 37, "{%32,%33,%34,%35}, %36, add, 1, 1, 0", ROWS);
}

/// multiply_64_columns of f16.
template <bool kAdd>
__device__ __forceinline__ void multiply_64_columns_f16(float (&c)[32], const uint32_t* a,
                                                        uint64_t b) {
  WGMMA("f16", 64, 32, 37, "{%32,%33,%34,%35}, %36, add, 1, 1, 1", ROWS);
}

/// multiply_128_columns of f16.
template <bool kAdd>
__device__ __forceinline__ void multiply_128_columns_f16(float (&c)[64], const uint32_t* a,
                                                         uint64_t b) {
  WGMMA("f16", 128, 64, 69, "{%64,%65,%66,%67}, %68, add, 1, 1, 1", ROWS);
}

#undef EIGHT
#undef OPERANDS_16
#undef OPERANDS_32
#undef OPERANDS_64
#undef NAMES_16
#undef NAMES_32
#undef NAMES_64
#undef WGMMA
#undef ROWS

}  // namespace goldenrule::gpu::ptx
