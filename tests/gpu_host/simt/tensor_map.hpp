// SPDX-License-Identifier: Apache-2.0
//
// Boxes of a tensor of three axes, as the copy engine of sm_90 moves them between global and shared
// memory: with the 128-byte swizzle, in which piece c of 16 bytes of a shared address lies at c ^
// (bits 7 to 9 of the address). Its maps are what cuTensorMapEncodeTiled makes; here the function
// writes a TensorMap into the 128 bytes and refuses what the driver refuses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace goldenrule::simt {

struct TensorMap {
  static constexpr std::uint64_t kMark = 0x676f6c64656e6d70;
  static constexpr int kAxes = 3;

  std::uint64_t mark;
  std::byte* data;
  std::int64_t extent[kAxes];
  std::int64_t stride[kAxes - 1];  ///< bytes, of the middle and the outer axis
  std::int32_t box[kAxes];
  std::int32_t element_bytes;
};

/// cuTensorMapEncodeTiled, as a function of the driver that the runtime gives out by this address.
[[nodiscard]] void* encode_function();

void begin_box_copy(void* shared, const void* map, int inner, int middle, int outer,
                    std::uint64_t& barrier);
void begin_box_store(const void* map, int inner, int middle, int outer, const void* shared);

/// Where the hardware puts the bytes of this shared address in the 128-byte swizzle.
constexpr std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 7 & 7U) << 4;
}

}  // namespace goldenrule::simt
