// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/index_loads.cuh on the host.
#pragma once

#include <cstdint>
#include <cstring>

namespace goldenrule::gpu::ptx {

inline uint2 load_index_bits(bool there, const void* data, bool wide, int64_t i) {
  uint2 bits{};
  if (there && wide) std::memcpy(&bits, static_cast<const int64_t*>(data) + i, 8);
  if (there && !wide) std::memcpy(&bits, static_cast<const int32_t*>(data) + i, 4);
  return bits;
}

}  // namespace goldenrule::gpu::ptx
