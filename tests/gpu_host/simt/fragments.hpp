// SPDX-License-Identifier: Apache-2.0
//
// Who holds which element of a matrix of bf16 or f16 (ptx/matrix.cuh), and how a sum is rounded.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/gpu_host/simt/block.hpp"

namespace goldenrule::simt {

inline constexpr int kInner = 16;  // products of a number per instruction

/// Two elements in a register.
struct BF16Pair {
  static float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }
};
struct F16Pair {
  static float low(std::uint32_t pair) {
    const std::uint32_t magnitude = pair & 0x7fffU, sign = (pair & 0x8000U) << 16;
    // All but infinity and NaN is a number of fp32 times 2^-112.
    const bool finite = magnitude < 0x7c00U;
    const float x = finite ? std::bit_cast<float>(magnitude << 13) * 0x1p112F
                           : std::bit_cast<float>(magnitude << 13 | 0x7f800000U);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | sign);
  }
  static float high(std::uint32_t pair) { return low(pair >> 16); }
};

/// Towards zero.
inline float truncated(double x) {
  const auto f = static_cast<float>(x);
  if (!std::isfinite(f) || std::abs(static_cast<double>(f)) <= std::abs(x)) return f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(f) - 1);
}

/// Which rows and columns a lane holds.
struct Place {
  int g, t;
};
inline Place place_of(int lane) { return {lane / 4, lane % 4}; }

/// The operand A [16 x 16] from the registers of a warp.
template <class Type, class Registers>
void gather_left(Registers&& registers_of, float (&a)[16][kInner]) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    const std::uint32_t* r = registers_of(lane);
    for (int i = 0; i < 4; ++i) {
      float* to = &a[g + i % 2 * 8][i / 2 * 8 + 2 * t];
      to[0] = Type::low(r[i]);
      to[1] = Type::high(r[i]);
    }
  }
}

}  // namespace goldenrule::simt
