// SPDX-License-Identifier: Apache-2.0
//
// Loads of indices of either width without a branch, so that several can be on their way.
#pragma once

#include <cstdint>

namespace goldenrule::gpu::ptx {

/// The bits of index i of an array of int32, or int64 if `wide`; 0 unless `there`. By predicates,
/// without a branch: nothing waits for the load before the bits are used.
__device__ __forceinline__ uint2 load_index_bits(bool there, const void* data, bool wide,
                                                 int64_t i) {
  uint2 bits{};
  asm volatile(
      "{\n"
      ".reg .pred is_wide, is_narrow, is_there;\n"
      "setp.ne.u32 is_there, %3, 0;\n"
      "setp.ne.and.u32 is_wide, %4, 0, is_there;\n"
      "setp.eq.and.u32 is_narrow, %4, 0, is_there;\n"
      "@is_wide ld.global.v2.u32 {%0,%1}, [%2];\n"
      "@is_narrow ld.global.u32 %0, [%2];\n"
      "}"
      : "+r"(bits.x), "+r"(bits.y)
      : "l"(static_cast<const char*>(data) + (wide ? 8 * i : 4 * i)), "r"(there ? 1 : 0),
        "r"(wide ? 1 : 0));
  return bits;
}

}  // namespace goldenrule::gpu::ptx
