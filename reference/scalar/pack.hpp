// SPDX-License-Identifier: Apache-2.0
//
// Eight doubles that are computed on together. The value columns of a delta-rule state never mix,
// so the recurrence runs on packs of columns; every lane sees exactly the scalar operations, in the
// same order, and the result does not depend on the vector width that the machine has.
#pragma once

#if defined(__GNUC__)
#define GOLDENRULE_INLINE inline __attribute__((always_inline))
#else
#error "goldenrule uses the vector extensions of GCC and Clang"
#endif

// One function, compiled for three generations of x86-64 and chosen at load time. The arithmetic
// is the same in each (no contraction, IEEE operations only), so are the bits. Not with a
// sanitizer: what chooses runs before the sanitizer has begun.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GOLDENRULE_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define GOLDENRULE_VECTOR_CLONES
#endif

namespace goldenrule::scalar {

inline constexpr int kPackWidth = 8;

// A struct of fixed alignment: that of a bare vector type depends on the instruction set that a
// function is compiled for, so the clones of one function would disagree about it.
struct alignas(kPackWidth * sizeof(double)) Pack {
  using Native = double __attribute__((vector_size(kPackWidth * sizeof(double))));
  Native v{};

  Pack() = default;
  GOLDENRULE_INLINE Pack(Native native) : v(native) {}

  GOLDENRULE_INLINE double operator[](int lane) const { return v[lane]; }
  GOLDENRULE_INLINE void set(int lane, double x) { v[lane] = x; }

  GOLDENRULE_INLINE Pack& operator+=(const Pack& b) {
    v += b.v;
    return *this;
  }
  GOLDENRULE_INLINE friend Pack operator-(const Pack& a) { return -a.v; }
  GOLDENRULE_INLINE friend Pack operator+(const Pack& a, const Pack& b) { return a.v + b.v; }
  GOLDENRULE_INLINE friend Pack operator-(const Pack& a, const Pack& b) { return a.v - b.v; }
  GOLDENRULE_INLINE friend Pack operator*(const Pack& a, const Pack& b) { return a.v * b.v; }
  GOLDENRULE_INLINE friend Pack operator/(const Pack& a, const Pack& b) { return a.v / b.v; }
};

GOLDENRULE_INLINE Pack broadcast(double x) { return Pack::Native{} + x; }

/// a * b + c with one rounding, as the error-free product of double_double.hpp needs it.
GOLDENRULE_INLINE double fused_multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
GOLDENRULE_INLINE Pack fused_multiply_add(const Pack& a, const Pack& b, const Pack& c) {
  Pack r;
  for (int i = 0; i < kPackWidth; ++i) r.v[i] = __builtin_fma(a.v[i], b.v[i], c.v[i]);
  return r;
}

}  // namespace goldenrule::scalar
