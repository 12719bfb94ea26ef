// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/rule/fixed.hpp"

#include <cmath>

namespace goldenrule::drafts {
namespace {

constexpr int kSignificand = 24;
constexpr int kHalfBits = 32;
constexpr std::uint64_t kHalf = 0xffffffff;

// x = significand 2^exponent with 24 bits.
struct Parts {
  std::uint64_t significand;
  int exponent;
};

Parts parts_of(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return {static_cast<std::uint64_t>(std::ldexp(fraction, kSignificand)), exponent - kSignificand};
}

}  // namespace

template <class F>
void Fixed::place(double x, const F& f) {
  if (x == 0.0) return;
  const Parts p = parts_of(x);
  const int shift = p.exponent - kUnit;
  const auto word = static_cast<std::size_t>(shift / kWordBits);
  const int bit = shift % kWordBits;
  f(word, p.significand << bit);
  const std::uint64_t high = bit == 0 ? 0 : p.significand >> (kWordBits - bit);
  if (high != 0) f(word + 1, high);
}

void Fixed::add(double x) {
  place(x, [this](std::size_t i, std::uint64_t word) { add_word(i, word); });
}

void Fixed::subtract(double x) {
  place(x, [this](std::size_t i, std::uint64_t word) { subtract_word(i, word); });
}

void Fixed::add_word(std::size_t i, std::uint64_t word) {
  while (i < kWords && word != 0) {
    words_[i] += word;
    word = words_[i] < word ? 1 : 0;
    ++i;
  }
}

void Fixed::subtract_word(std::size_t i, std::uint64_t word) {
  while (i < kWords && word != 0) {
    const std::uint64_t before = words_[i];
    words_[i] -= word;
    word = before < word ? 1 : 0;
    ++i;
  }
}

Fixed Fixed::times(double u) const {
  Fixed product;
  if (u == 0.0) return product;
  const Parts p = parts_of(u);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    // By halves: the significand has 24 bits, so nothing leaves 64.
    const std::uint64_t low = (words_[i] & kHalf) * p.significand + carry;
    const std::uint64_t high = (words_[i] >> kHalfBits) * p.significand + (low >> kHalfBits);
    product.words_[i] = high << kHalfBits | (low & kHalf);
    carry = high >> kHalfBits;
  }
  // The exponent of a u of 0 to 1 is below 0, and what is shifted out are zeros.
  const auto words = static_cast<std::size_t>(-p.exponent / kWordBits);
  const int bits = -p.exponent % kWordBits;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t low = i + words < kWords ? product.words_[i + words] : 0;
    const std::uint64_t high = i + words + 1 < kWords ? product.words_[i + words + 1] : 0;
    product.words_[i] = bits == 0 ? low : low >> bits | high << (kWordBits - bits);
  }
  return product;
}

double Fixed::to_double() const {
  double sum = 0.0;  // the lowest first, so that only the last additions round
  for (std::size_t i = 0; i < kWords; ++i) {
    sum += std::ldexp(static_cast<double>(words_[i]), kUnit + static_cast<int>(i) * kWordBits);
  }
  return sum;
}

double Fixed::distance(const Fixed& other) const {
  Fixed larger = *this < other ? other : *this;
  const Fixed& smaller = *this < other ? *this : other;
  for (std::size_t i = 0; i < kWords; ++i) larger.subtract_word(i, smaller.words_[i]);
  return larger.to_double();
}

std::strong_ordering Fixed::operator<=>(const Fixed& other) const {
  for (std::size_t i = kWords; i-- > 0;) {
    if (words_[i] != other.words_[i]) return words_[i] <=> other.words_[i];
  }
  return std::strong_ordering::equal;
}

}  // namespace goldenrule::drafts
