// SPDX-License-Identifier: Apache-2.0
//
// The double-double operations against 168-bit arithmetic, in the unit that double_double.hpp
// claims: 16 u^2 relative to the result, cancellation included. Operands are exact in both types.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "reference/scalar/tier.hpp"
#include "tests/rule/random_lane.hpp"

using namespace goldenrule;
using rule::test::Uniform;
using scalar::Multi;
using scalar::Quad;

namespace {

constexpr int kCount = 200000;
constexpr double kUnit = 16 * 0x1p-53 * 0x1p-53;

Multi widen(const Quad& x) { return Multi(x.hi) + Multi(x.lo); }

// hi of any binade within +-e, lo anywhere between half an ulp and 2^-60 of it below, or zero: the
// sum then fits 168 bits.
Quad operand(Uniform& uniform, int e) {
  const int exponent = static_cast<int>(uniform.bits() % static_cast<unsigned>(2 * e + 1)) - e;
  const double hi = std::ldexp(1.0 + std::fabs(uniform()), exponent) * (uniform() < 0 ? -1 : 1);
  if (uniform.bits() % 8 == 0) return {hi};
  const int gap = static_cast<int>(uniform.bits() % 60);
  const double lo = std::ldexp(uniform(), exponent - 53 - gap);
  return {hi, hi + lo == hi ? lo : 0.0};
}

// Almost -x: all of the leading bits cancel, or all but the last few.
Quad near_negative(Uniform& uniform, const Quad& x) {
  const double hi = -x.hi * (1.0 + static_cast<double>(uniform.bits() % 9) * 0x1p-52);
  const double lo = -x.lo * (1.0 + uniform() * 0x1p-20);
  return {hi, hi + lo == hi ? lo : 0.0};
}

double relative_error(const Quad& computed, const Multi& exact) {
  if (exact == 0) return computed.hi == 0.0 && computed.lo == 0.0 ? 0.0 : HUGE_VAL;
  return static_cast<double>(abs((widen(computed) - exact) / exact));
}

struct Largest {
  const char* name;
  double error = 0;
  int above = 0;

  void add(const Quad& computed, const Multi& exact) {
    const double e = relative_error(computed, exact);
    error = std::fmax(error, e);
    above += e <= kUnit ? 0 : 1;
    // A normalised result: what to_double takes for the rounded value is it.
    above += computed.hi + computed.lo == computed.hi ? 0 : 1;
  }
  ~Largest() {
    MESSAGE(name, ": largest relative error ", error * 0x1p106, " u^2 of the 16 that are claimed");
    CHECK(above == 0);
  }
};

}  // namespace

TEST_CASE("quad: sums and differences") {
  Uniform uniform(1);
  Largest sum{"sum"}, cancelled{"cancelling sum"};
  for (int i = 0; i < kCount; ++i) {
    const Quad x = operand(uniform, 40);
    const Quad y = operand(uniform, 40);
    sum.add(x + y, widen(x) + widen(y));
    sum.add(x - y, widen(x) - widen(y));
    const Quad z = near_negative(uniform, x);
    cancelled.add(x + z, widen(x) + widen(z));
  }
  const Quad x = operand(uniform, 0);
  CHECK((x - x) == Quad(0.0));
}

TEST_CASE("quad: products and quotients") {
  Uniform uniform(2);
  Largest product{"product"}, quotient{"quotient"};
  for (int i = 0; i < kCount; ++i) {
    const Quad x = operand(uniform, 200);
    const Quad y = operand(uniform, 200);
    product.add(x * y, widen(x) * widen(y));
    quotient.add(x / y, widen(x) / widen(y));
  }
}

TEST_CASE("quad: square roots") {
  Uniform uniform(3);
  Largest root{"root"};
  for (int i = 0; i < kCount / 4; ++i) {
    const Quad x = abs(operand(uniform, 300));
    root.add(scalar::square_root(x), sqrt(widen(x)));
  }
  root.add(scalar::square_root(Quad(0.0)), Multi(0));
  CHECK(std::isnan(scalar::square_root(Quad(-1.0)).hi));
  CHECK(std::isinf(scalar::square_root(Quad(HUGE_VAL)).hi));
}

TEST_CASE("quad: order") {
  const Quad one(1.0), above(1.0, 0x1p-60), below(1.0, -0x1p-60);
  CHECK(below < one);
  CHECK(one < above);
  CHECK(above > below);
  CHECK(one <= one);
  CHECK_FALSE(one < one);
  CHECK(abs(-above) == above);
  const Quad nan(std::nan(""));
  CHECK_FALSE(nan < one);
  CHECK_FALSE(nan > one);
  CHECK_FALSE(nan == nan);
}
