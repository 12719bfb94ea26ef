// SPDX-License-Identifier: Apache-2.0
//
// One function per memory instruction. A decode step reads each byte of state once and writes it
// once, so L1 must not keep it: `no_allocate` leaves L1 to q, k, v and the gates. The loads are
// volatile so that they issue where they are written, which is before the tokens are prepared,
// and plain (not .nc), because an in-place update writes the same lines later. The stores have no
// hint: marked as not to be kept, lines left the L2 in halves and cost 1 % of a large batch.
#pragma once

#include <cstdint>

namespace goldenrule::gpu::ptx {

__device__ __forceinline__ uint4 load_streaming_16(const void* p) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(p));
  return x;
}

__device__ __forceinline__ uint2 load_streaming_8(const void* p) {
  uint2 x;
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p));
  return x;
}

__device__ __forceinline__ uint32_t load_streaming_4(const void* p) {
  uint32_t x;
  asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ void store_16(void* p, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

__device__ __forceinline__ void store_8(void* p, uint2 x) {
  asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory");
}

__device__ __forceinline__ void store_4(void* p, uint32_t x) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

/// Written once and not read soon: the first to leave the L2.
__device__ __forceinline__ void store_streaming_16(void* p, uint4 x) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

__device__ __forceinline__ void store_streaming_8(void* p, uint2 x) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory");
}

__device__ __forceinline__ void store_streaming_4(void* p, uint32_t x) {
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

/// Loads 32 bits into `word` where `kind` is kWord, else 16 bits into `half`; the other register
/// keeps its content. By predicates, without a branch.
template <uint32_t kWord>
__device__ __forceinline__ void load_word_or_half(uint32_t& word, uint32_t& half, const void* p,
                                                  uint32_t kind) {
  asm volatile(
      "{\n"
      ".reg .pred is_word;\n"
      "setp.eq.u32 is_word, %3, %4;\n"
      "@is_word ld.global.u32 %0, [%2];\n"
      "@!is_word ld.global.u16 %1, [%2];\n"
      "}"
      : "+r"(word), "+r"(half)
      : "l"(p), "r"(kind), "n"(kWord));
}

/// Index i of an array of int32, or int64 if `wide`, as L2 has it: a later plain load of the same
/// index must not find this value in L1.
__device__ __forceinline__ int64_t load_relaxed_index(const void* data, bool wide, int64_t i) {
  if (wide) {
    int64_t x;
    asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];"
                 : "=l"(x)
                 : "l"(static_cast<const int64_t*>(data) + i));
    return x;
  }
  int32_t x;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
               : "=r"(x)
               : "l"(static_cast<const int32_t*>(data) + i));
  return x;
}

/// A flag in global memory: what was written before a release is seen behind the acquire that reads
/// it, by any thread of the device.
__device__ __forceinline__ void store_release(int* p, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ int load_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

/// Asks for the line of `p` in L2; no register waits for it.
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace goldenrule::gpu::ptx
