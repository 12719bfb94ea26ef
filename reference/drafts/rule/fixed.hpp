// SPDX-License-Identifier: Apache-2.0
//
// Sums of probabilities without rounding. An f32 is a multiple of 2^-149, and so is a sum of them;
// times a uniform, an f32 as well, it is a multiple of 2^-298. 384 bits from there on reach 2^86,
// far beyond a sum of 2^18 probabilities times 2^24. bf16 and f16 are f32.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace goldenrule::drafts {

class Fixed {
 public:
  /// x >= 0, an f32 of at most 2.
  void add(double x);
  /// The same of an x that is at most what is here.
  void subtract(double x);

  /// The product with an f32 of 0 to 1; this must be a sum of f32.
  [[nodiscard]] Fixed times(double u) const;
  /// |this - other|, rounded to double.
  [[nodiscard]] double distance(const Fixed& other) const;
  [[nodiscard]] double to_double() const;

  [[nodiscard]] std::strong_ordering operator<=>(const Fixed& other) const;
  [[nodiscard]] bool operator==(const Fixed& other) const = default;

 private:
  static constexpr int kUnit = -298;  // exponent of the lowest bit
  static constexpr std::size_t kWords = 6;
  static constexpr int kWordBits = 64;

  // f(word, bits) for the one or two words that x reaches.
  template <class F>
  static void place(double x, const F& f);
  void add_word(std::size_t i, std::uint64_t word);
  void subtract_word(std::size_t i, std::uint64_t word);

  std::array<std::uint64_t, kWords> words_{};  // lowest first
};

}  // namespace goldenrule::drafts
