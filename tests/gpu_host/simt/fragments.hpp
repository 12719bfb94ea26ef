// SPDX-License-Identifier: Apache-2.0
//
// Who holds which element of a matrix of bf16 (ptx/matrix.cuh), and how a sum is rounded.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/gpu_host/simt/block.hpp"

namespace goldenrule::simt {

inline constexpr int kInner = 16;  // products of a number per instruction

inline float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
inline float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

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
template <class Registers>
void gather_left(Registers&& registers_of, float (&a)[16][kInner]) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [g, t] = place_of(lane);
    const std::uint32_t* r = registers_of(lane);
    for (int i = 0; i < 4; ++i) {
      float* to = &a[g + i % 2 * 8][i / 2 * 8 + 2 * t];
      to[0] = low(r[i]);
      to[1] = high(r[i]);
    }
  }
}

}  // namespace goldenrule::simt
