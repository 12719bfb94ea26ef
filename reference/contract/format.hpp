// SPDX-License-Identifier: Apache-2.0
//
// The number formats that a kernel rounds intermediate values to. Storage types (call::DType) and
// one that is never stored: tf32, what tensor cores read of an fp32 operand, 11 significant bits
// with the exponents of fp32. Hardware converts to it by truncation, unless the kernel rounds. And
// one that stands for two: a kernel with fp16 inputs multiplies fp16 or bf16 operands, and may be
// off by what either takes, the 8 bits of bf16 or the spacing 2^-24 of small fp16 numbers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace goldenrule::contract {

enum class Format : std::uint8_t { kF32, kTF32, kF16, kBF16, kAny16, kTwoBF16 };
/// In JSON and reports.
inline constexpr std::array<std::string_view, 6> kFormatNames{"f32",  "tf32",  "f16",
                                                              "bf16", "any16", "bf16x2"};

struct FormatInfo {
  std::string_view name;
  int significand_bits;  ///< the hidden one counted
  int min_exponent;      ///< of the smallest normal number
  int max_exponent;

  [[nodiscard]] double largest() const {
    const auto power = static_cast<std::uint64_t>(max_exponent + 1023) << 52;
    return (2.0 -
            std::bit_cast<double>(static_cast<std::uint64_t>(1024 - significand_bits) << 52)) *
           std::bit_cast<double>(power);
  }
};

[[nodiscard]] const FormatInfo& info(Format format);

/// 2^-p: the largest relative error of rounding to nearest.
[[nodiscard]] double unit_roundoff(Format format);

/// Half the spacing of `f` at x; 0 at 0, which every format has. From the exponent field: this runs
/// for every rounding of every emulated kernel. Powers of two are built from their bits, which the
/// exponents of these formats stay far within.
[[nodiscard]] inline double half_ulp(const FormatInfo& f, double x) {
  const auto field = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ffU);
  const int exponent = std::max(field, f.min_exponent + 1023) - f.significand_bits;
  return x == 0.0 ? 0.0 : std::bit_cast<double>(static_cast<std::uint64_t>(exponent) << 52);
}

/// x rounded once, nearest-even, subnormals kept, overflow to infinity.
[[nodiscard]] double round_to(Format format, double x);

}  // namespace goldenrule::contract
