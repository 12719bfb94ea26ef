// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/memory.cuh on the CPU.
#pragma once

#include <cstdint>
#include <cstring>

#include "tests/gpu_host/simt/grid.hpp"

namespace goldenrule::gpu::ptx {

inline uint4 load_streaming_16(const void* p) { return *static_cast<const uint4*>(p); }
inline uint2 load_streaming_8(const void* p) { return *static_cast<const uint2*>(p); }
inline uint32_t load_streaming_4(const void* p) { return *static_cast<const uint32_t*>(p); }

inline void store_16(void* p, uint4 x) { *static_cast<uint4*>(p) = x; }
inline void store_8(void* p, uint2 x) { *static_cast<uint2*>(p) = x; }
inline void store_4(void* p, uint32_t x) { *static_cast<uint32_t*>(p) = x; }
inline void store_streaming_16(void* p, uint4 x) { store_16(p, x); }
inline void store_streaming_8(void* p, uint2 x) { store_8(p, x); }
inline void store_streaming_4(void* p, uint32_t x) { store_4(p, x); }

template <uint32_t kWord>
void load_word_or_half(uint32_t& word, uint32_t& half, const void* p, uint32_t kind) {
  if (kind == kWord) {
    word = *static_cast<const uint32_t*>(p);
  } else {
    half = *static_cast<const uint16_t*>(p);
  }
}

inline int64_t load_relaxed_index(const void* data, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
}

inline void store_release(int* p, int x) {
  simt::this_block().perhaps_give_way();
  *p = x;
  simt::this_block().grid().progress();
  simt::this_block().perhaps_give_way();
}
/// Loops ask for it again and again: all others come first.
inline int load_acquire(const int* p) {
  simt::this_block().poll("a flag in global memory");
  return *p;
}

inline void prefetch_l2(const void* /*p*/) {}

}  // namespace goldenrule::gpu::ptx
