// SPDX-License-Identifier: Apache-2.0
//
// Random values as a function of (seed, position): the same whatever the order.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace goldenrule::test {

/// splitmix64 of seed and position.
[[nodiscard]] inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = (seed * 0x9e3779b97f4a7c15ULL + i + 1) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

/// Uniform in (0, 1).
[[nodiscard]] inline double uniform(std::uint64_t seed, std::uint64_t i) {
  return (static_cast<double>(random_bits(seed, i) >> 12) + 0.5) * 0x1p-52;
}

/// Standard normal.
[[nodiscard]] inline double normal(std::uint64_t seed, std::uint64_t i) {
  const double radius = std::sqrt(-2.0 * std::log(uniform(seed, 2 * i)));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(seed, 2 * i + 1));
}

}  // namespace goldenrule::test
