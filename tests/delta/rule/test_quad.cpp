// SPDX-License-Identifier: Apache-2.0
//
// The double-double operations against 400-bit arithmetic, in the unit that double_double.hpp
// claims: 16 u^2 relative to the result, cancellation included. The wide type holds the operands
// and their sums exactly; 168 bits would not where leading bits cancel.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "reference/scalar/tier.hpp"
#include "tests/delta/rule/random_lane.hpp"

using namespace goldenrule;
using delta::test::Uniform;
using scalar::Quad;

namespace {

using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<120>,
                                           boost::multiprecision::et_off>;

constexpr int kCount = 100000;
constexpr double kUnit = 16 * 0x1p-53 * 0x1p-53;

Wide widen(const Quad& x) { return Wide(x.hi) + Wide(x.lo); }

// hi of any binade within +-e, lo anywhere between half an ulp and 2^-60 of it below, or zero.
Quad operand(Uniform& uniform, int e) {
  const int exponent = static_cast<int>(uniform.bits() % static_cast<unsigned>(2 * e + 1)) - e;
  const double hi = std::ldexp(1.0 + std::fabs(uniform()), exponent) * (uniform() < 0 ? -1 : 1);
  if (uniform.bits() % 8 == 0) return {hi};
  const int gap = static_cast<int>(uniform.bits() % 60);
  const double lo = std::ldexp(uniform(), exponent - 53 - gap);
  return {hi, hi + lo == hi ? lo : 0.0};
}

// -x up to one of its last places, in hi and in lo: anything from no bit to all bits cancel.
Quad near_negative(Uniform& uniform, const Quad& x) {
  const double hi =
      -x.hi * (1.0 + uniform() * std::ldexp(1.0, -static_cast<int>(uniform.bits() % 56)));
  const double lo =
      -x.lo * (1.0 + uniform() * std::ldexp(1.0, -static_cast<int>(uniform.bits() % 56)));
  return {hi, hi + lo == hi ? lo : 0.0};
}

double relative_error(const Quad& computed, const Wide& exact) {
  if (exact == 0) return computed.hi == 0.0 && computed.lo == 0.0 ? 0.0 : HUGE_VAL;
  return static_cast<double>(abs((widen(computed) - exact) / exact));
}

struct Largest {
  std::string name;
  double error = 0;
  int above = 0;

  void add(const Quad& computed, const Wide& exact) {
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
  root.add(scalar::square_root(Quad(0.0)), Wide(0));
  CHECK(std::isnan(scalar::square_root(Quad(-1.0)).hi));
  CHECK(std::isinf(scalar::square_root(Quad(HUGE_VAL)).hi));
}

TEST_CASE("quad: infinities obey the rules of double") {
  const double inf = HUGE_VAL;
  const Quad one(1.0, 0x1p-60);
  for (const Quad& x : {one + Quad(inf), Quad(inf) + one, Quad(inf) - one, one * Quad(inf),
                        Quad(inf) / one, one / Quad(0.0), Quad(1e200) * Quad(1e200)}) {
    CHECK(x == Quad(inf));
  }
  CHECK(one / Quad(inf) == Quad(0.0));
  CHECK(std::isnan((Quad(inf) - Quad(inf)).hi));
  CHECK(std::isnan((Quad(inf) * Quad(0.0)).hi));
  CHECK(std::isnan((Quad(std::nan("")) + one).hi));
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
