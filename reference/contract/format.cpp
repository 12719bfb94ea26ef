// SPDX-License-Identifier: Apache-2.0
#include "reference/contract/format.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace goldenrule::contract {
namespace {

// Two bf16 numbers of which one is half an ulp of the other at most have 16 bits together.
constexpr std::array<FormatInfo, kFormatNames.size()> kTable{{{kFormatNames[0], 24, -126, 127},
                                                              {kFormatNames[1], 11, -126, 127},
                                                              {kFormatNames[2], 11, -14, 15},
                                                              {kFormatNames[3], 8, -126, 127},
                                                              {kFormatNames[4], 8, -17, 127},
                                                              {kFormatNames[5], 16, -118, 127}}};

}  // namespace

const FormatInfo& info(Format format) { return kTable[static_cast<std::size_t>(format)]; }

double unit_roundoff(Format format) { return std::ldexp(1.0, -info(format).significand_bits); }

double round_to(Format format, double x) {
  if (format == Format::kF32) return static_cast<double>(static_cast<float>(x));
  if (!std::isfinite(x) || x == 0.0) return x;
  const FormatInfo& f = info(format);
  // Numbers near 1.5 2^52 spacings are spaced by one: the sum rounds, the difference is exact.
  const double shift = 0x1.8p53 * half_ulp(f, x);
  const double rounded = (x + shift) - shift;
  if (std::fabs(rounded) > f.largest()) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return std::copysign(rounded, x);
}

}  // namespace goldenrule::contract
