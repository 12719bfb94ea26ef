// SPDX-License-Identifier: Apache-2.0
//
// What an element is that no kernel has written: a NaN, which no comparison takes for a number, of
// bits that no arithmetic makes. A NaN that a mistaken kernel computes (0 * Inf) is written, and
// says nothing of a number that stands in its place. f32 keeps the bits; types of 16 bits do not.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "fixtures/call/tensor.hpp"

namespace goldenrule::calls {

inline constexpr std::uint64_t kUnwrittenBits = 0x7ffd'4000'0000'0000U;
inline constexpr double kUnwritten = std::bit_cast<double>(kUnwrittenBits);

/// Whether `x` is kUnwritten, whatever its sign: a negation is no write.
[[nodiscard]] inline bool is_unwritten(double x) {
  return (std::bit_cast<std::uint64_t>(x) & ~(std::uint64_t{1} << 63)) == kUnwrittenBits;
}

/// Makes of each unwritten element what a buffer holds that was filled with NaN.
void fill_unwritten(std::span<double> values);

/// An f64 tensor with every element unwritten.
[[nodiscard]] call::Tensor unwritten_tensor(const call::Shape& shape);

/// `tensor` in f64.
[[nodiscard]] call::Tensor widened(const call::Tensor& tensor);

}  // namespace goldenrule::calls
