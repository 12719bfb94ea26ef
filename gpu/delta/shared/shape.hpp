// SPDX-License-Identifier: Apache-2.0
//
// What kernels of the delta rule are specialized for, in decode as in prefill: the format of their
// states and the shape of their blocks.
#pragma once

#include <cstdint>

namespace goldenrule::gpu::recurrent {

/// Storage type of the state (fp32 or bf16) and layout ([V,K] or [K,V]); one .cu file for each.
struct StateFormat {
  bool bf16 = false;
  bool kv = false;

  bool operator==(const StateFormat&) const = default;
};
inline constexpr int kStateFormats = 4;
[[nodiscard]] constexpr int index_of(StateFormat format) {
  return (format.bf16 ? 2 : 0) + (format.kv ? 1 : 0);
}

/// The shape of a block.
struct Shape {
  int rows;        ///< of a thread's register tile; for mtp*.cuh: matrices of 16 rows per warp
  int warps;       ///< of a block
  int min_blocks;  ///< resident per multiprocessor; bounds the registers
  int chunks =
      1;  ///< register tiles that a thread works through, one after the other (decode only)
  bool one_block_per_sm = false;  ///< one block per multiprocessor beats full occupancy
};

/// The resident blocks that bound the registers of a kernel. Shapes are tuned on 9.0; elsewhere
/// ptxas needs more registers, and with more than 8 warps resident it has 168 for a thread at most,
/// since a multiprocessor has them in quarters. Spilled registers would cost more than warps that
/// are missing.
constexpr int bounding_blocks(const Shape& shape) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  constexpr int kWarpsOfAllRegisters = 8;
  const int blocks = shape.warps < kWarpsOfAllRegisters ? kWarpsOfAllRegisters / shape.warps : 1;
  return blocks < shape.min_blocks ? blocks : shape.min_blocks;
#else
  return shape.min_blocks;
#endif
}

/// The most tokens that kernels for a few tokens take: the columns of a matrix on the tensor cores.
inline constexpr int kMtpTokens = 8;

}  // namespace goldenrule::gpu::recurrent
