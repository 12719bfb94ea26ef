// SPDX-License-Identifier: Apache-2.0
//
// Double-double numbers, about 106 bits: x = hi + lo with |lo| <= ulp(hi)/2, over F = double or a
// Pack of doubles. The algorithms and their proven relative errors (u = 2^-53) are those of
// Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic building blocks of
// double-word arithmetic", ACM TOMS 44(2), 2017, with the improved product bound of Muller and
// Rideau, "Formalization of double-word arithmetic", ACM TOMS 48(1), 2022:
//
//   sum      AccurateDWPlusDW   3 u^2 + 13 u^3
//   product  DWTimesDW3         4 u^2
//   quotient DWDivDW2           15 u^2 + 56 u^3
//   root     SQRTDWtoDW         25/8 u^2      (via one Newton step below: < 16 u^2 likewise)
//
// so 16 u^2 = 2^-102 is a unit roundoff for every operation. The error-free steps assume round to
// nearest and neither overflow nor underflow of the low parts; the certificate adds an absolute
// underflow term for the latter.
#pragma once

#include <cmath>
#include <type_traits>

#include "reference/scalar/pack.hpp"

namespace goldenrule::scalar {

template <class F>
struct DoubleDouble {
  F hi{};
  F lo{};

  DoubleDouble() = default;
  GOLDENRULE_INLINE DoubleDouble(F high) : hi(high) {}  // exact: every double is one
  GOLDENRULE_INLINE DoubleDouble(F high, F low) : hi(high), lo(low) {}

  GOLDENRULE_INLINE DoubleDouble& operator+=(DoubleDouble y) { return *this = *this + y; }
  GOLDENRULE_INLINE DoubleDouble& operator-=(DoubleDouble y) { return *this = *this - y; }
  GOLDENRULE_INLINE DoubleDouble& operator*=(DoubleDouble y) { return *this = *this * y; }
  GOLDENRULE_INLINE DoubleDouble& operator/=(DoubleDouble y) { return *this = *this / y; }

  GOLDENRULE_INLINE friend DoubleDouble operator-(DoubleDouble x) { return {-x.hi, -x.lo}; }

  GOLDENRULE_INLINE friend DoubleDouble operator+(DoubleDouble x, DoubleDouble y) {
    const DoubleDouble s = two_sum(x.hi, y.hi);
    if (is_limit(s.hi)) return {s.hi};
    const DoubleDouble t = two_sum(x.lo, y.lo);
    const DoubleDouble v = fast_two_sum(s.hi, s.lo + t.hi);
    return fast_two_sum(v.hi, t.lo + v.lo);
  }
  GOLDENRULE_INLINE friend DoubleDouble operator-(DoubleDouble x, DoubleDouble y) {
    return x + (-y);
  }
  GOLDENRULE_INLINE friend DoubleDouble operator*(DoubleDouble x, DoubleDouble y) {
    const DoubleDouble c = two_product(x.hi, y.hi);
    if (is_limit(c.hi)) return {c.hi};
    const F low = fused_multiply_add(x.lo, y.hi, fused_multiply_add(x.hi, y.lo, x.lo * y.lo));
    return fast_two_sum(c.hi, c.lo + low);
  }
  GOLDENRULE_INLINE friend DoubleDouble operator/(DoubleDouble x, DoubleDouble y) {
    const F th = x.hi / y.hi;
    if (is_limit(th) || is_limit(y.hi)) return {th};
    // r = y * th, DWTimesFP3
    const DoubleDouble p = two_product(y.hi, th);
    const DoubleDouble r = fast_two_sum(p.hi, fused_multiply_add(y.lo, th, p.lo));
    const F delta = (x.hi - r.hi) + (x.lo - r.lo);
    return fast_two_sum(th, delta / y.hi);
  }

  friend bool operator==(DoubleDouble x, DoubleDouble y) { return x.hi == y.hi && x.lo == y.lo; }
  friend bool operator<(DoubleDouble x, DoubleDouble y) {
    return x.hi < y.hi || (x.hi == y.hi && x.lo < y.lo);
  }
  friend bool operator>(DoubleDouble x, DoubleDouble y) { return y < x; }
  friend bool operator<=(DoubleDouble x, DoubleDouble y) { return x < y || x == y; }
  friend bool operator>=(DoubleDouble x, DoubleDouble y) { return y <= x; }

 private:
  // Infinity and NaN obey IEEE 754 as they do in double: the error terms would make inf - inf of
  // them, and a gate input of +inf, which erases the state, would poison it. Single numbers only:
  // packs hold states, where the two are the same finding.
  GOLDENRULE_INLINE static bool is_limit(F x) {
    if constexpr (std::is_same_v<F, double>) {
      return !std::isfinite(x);
    } else {
      return false;
    }
  }
  // hi + lo == a + b exactly (Knuth); fast form where |a| >= |b| or a == 0 (Dekker).
  GOLDENRULE_INLINE static DoubleDouble two_sum(F a, F b) {
    const F s = a + b;
    const F bb = s - a;
    return {s, (a - (s - bb)) + (b - bb)};
  }
  GOLDENRULE_INLINE static DoubleDouble fast_two_sum(F a, F b) {
    const F s = a + b;
    return {s, b - (s - a)};
  }
  // hi + lo == a * b exactly where a * b >= 2^-969.
  GOLDENRULE_INLINE static DoubleDouble two_product(F a, F b) {
    const F p = a * b;
    return {p, fused_multiply_add(a, b, -p)};
  }
};

/// The 106-bit tier.
using Quad = DoubleDouble<double>;

inline Quad abs(Quad x) { return x.hi < 0.0 ? -x : x; }

/// sqrt by one Newton step on the double root r: (r + x/r) / 2. With r = sqrt(x)(1 + e), |e| <= 2u,
/// the step leaves e^2/2 <= 2 u^2; the quotient, the sum and an exact halving add 15 + 3 u^2
/// over 2.
inline Quad sqrt(Quad x) {
  if (!(x.hi > 0.0) || std::isinf(x.hi)) return {std::sqrt(x.hi)};
  const Quad r(std::sqrt(x.hi));
  const Quad sum = r + x / r;
  return {0.5 * sum.hi, 0.5 * sum.lo};
}

}  // namespace goldenrule::scalar
