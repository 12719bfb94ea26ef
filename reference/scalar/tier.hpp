// SPDX-License-Identifier: Apache-2.0
//
// The precision tiers, and what an algorithm that is generic over them may use. Arithmetic is
// + - * / and comparison; everything else is a named function below. Tier<S> says how accurate the
// arithmetic is, which is all that the certificate needs to know:
//
//   fl(x op y) = (x op y)(1 + d) + t,   |d| <= kUnitRoundoff, |t| <= kUnderflow
//   f(x)       computed with relative error <= kFunctionError
//
// double:  u = 2^-53. glibc documents at most 2 ulp for exp, exp2 and log1p on x86-64 (The GNU C
//          Library, "Known Maximum Errors"), that is 4u; 8u is used.
// Quad:    u = 2^-102 (double_double.hpp). Functions go through binary128, whose library is
//          accurate to a few units of 2^-113; u covers that and the rounding back to 106 bits.
// Multi:   u = 2^-168. Boost.Multiprecision computes its functions with some guard digits and
//          documents no bound: 256u is used, and the three forms of the rule, the Quad tier and an
//          independent implementation in another language are compared against it in the tests.
#pragma once

#include <string_view>

#include "reference/scalar/double_double.hpp"
#include "reference/scalar/multi.hpp"
#include "reference/scalar/pack.hpp"
#include "reference/scalar/precision.hpp"

namespace goldenrule::scalar {

template <class S>
struct Tier;

template <>
struct Tier<double> {
  static constexpr Precision kPrecision = Precision::kDouble;
  static constexpr std::string_view kName = "double";
  static constexpr int kBits = 53;
  static constexpr double kUnitRoundoff = 0x1p-53;
  static constexpr double kFunctionError = 0x1p-50;
  static constexpr double kUnderflow = 0x1p-1074;
  using Vector = Pack;  ///< value columns computed on together
  static constexpr int kLanes = kPackWidth;
};

template <>
struct Tier<Quad> {
  static constexpr Precision kPrecision = Precision::kQuad;
  static constexpr std::string_view kName = "quad";
  static constexpr int kBits = 106;
  static constexpr double kUnitRoundoff = 0x1p-102;
  static constexpr double kFunctionError = 0x1p-100;
  static constexpr double kUnderflow = 0x1p-1070;  // of low parts; a few per operation
  using Vector = DoubleDouble<Pack>;
  static constexpr int kLanes = kPackWidth;
};

template <>
struct Tier<Multi> {
  static constexpr Precision kPrecision = Precision::kMulti;
  static constexpr std::string_view kName = "multi";
  static constexpr int kBits = 168;
  static constexpr double kUnitRoundoff = 0x1p-168;
  static constexpr double kFunctionError = 0x1p-160;
  static constexpr double kUnderflow = 0.0;  // its exponents have 31 bits
  using Vector = Multi;
  static constexpr int kLanes = 1;
};

// Value columns as vectors: broadcast one number, load and store single lanes.
template <class S>
GOLDENRULE_INLINE typename Tier<S>::Vector broadcast_column(const S& x);
template <>
GOLDENRULE_INLINE Pack broadcast_column<double>(const double& x) {
  return broadcast(x);
}
template <>
GOLDENRULE_INLINE DoubleDouble<Pack> broadcast_column<Quad>(const Quad& x) {
  return {broadcast(x.hi), broadcast(x.lo)};
}
template <>
GOLDENRULE_INLINE Multi broadcast_column<Multi>(const Multi& x) {
  return x;
}

GOLDENRULE_INLINE double get_lane(const Pack& v, int lane) { return v[lane]; }
GOLDENRULE_INLINE void set_lane(Pack& v, int lane, double x) { v.set(lane, x); }
GOLDENRULE_INLINE Quad get_lane(const DoubleDouble<Pack>& v, int lane) {
  return {v.hi[lane], v.lo[lane]};
}
GOLDENRULE_INLINE void set_lane(DoubleDouble<Pack>& v, int lane, const Quad& x) {
  v.hi.set(lane, x.hi);
  v.lo.set(lane, x.lo);
}
GOLDENRULE_INLINE const Multi& get_lane(const Multi& v, int) { return v; }
GOLDENRULE_INLINE void set_lane(Multi& v, int, const Multi& x) { v = x; }

/// Leading double of each lane: accurate to 2^-53, enough for norms that bound errors.
GOLDENRULE_INLINE Pack leading(const Pack& v) { return v; }
GOLDENRULE_INLINE Pack leading(const DoubleDouble<Pack>& v) { return v.hi; }
GOLDENRULE_INLINE double leading(const Multi& v) { return static_cast<double>(v); }

[[nodiscard]] inline double to_double(double x) { return x; }
[[nodiscard]] inline double to_double(const Quad& x) { return x.hi; }  // |lo| <= ulp(hi)/2
[[nodiscard]] inline double to_double(const Multi& x) { return static_cast<double>(x); }

// The functions of the rule, per tier (functions.cpp).
[[nodiscard]] double exp(double x);
[[nodiscard]] double exp2(double x);
[[nodiscard]] double log(double x);
[[nodiscard]] double log1p(double x);
[[nodiscard]] double square_root(double x);
[[nodiscard]] Quad exp(const Quad& x);
[[nodiscard]] Quad exp2(const Quad& x);
[[nodiscard]] Quad log(const Quad& x);
[[nodiscard]] Quad log1p(const Quad& x);
[[nodiscard]] Quad square_root(const Quad& x);
[[nodiscard]] Multi exp(const Multi& x);
[[nodiscard]] Multi exp2(const Multi& x);
[[nodiscard]] Multi log(const Multi& x);
[[nodiscard]] Multi log1p(const Multi& x);
[[nodiscard]] Multi square_root(const Multi& x);

}  // namespace goldenrule::scalar
