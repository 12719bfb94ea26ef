// SPDX-License-Identifier: Apache-2.0
#include <boost/math/constants/constants.hpp>
#include <boost/math/special_functions/log1p.hpp>
#include <cmath>
#include <limits>

#include "reference/scalar/binary128.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::scalar {
namespace {

// binary128 holds every Quad whose parts overlap within 113 bits; what is cut off beyond that is
// below 2^-113 of the value.
Binary128 widen(const Quad& x) {
  return static_cast<Binary128>(x.hi) + static_cast<Binary128>(x.lo);
}

Quad narrow(Binary128 x) {
  const auto hi = static_cast<double>(x);
  if (!std::isfinite(hi)) return {hi};
  return {hi, static_cast<double>(x - static_cast<Binary128>(hi))};
}

using Wider = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<60>,
                                            boost::multiprecision::et_off>;

// What Boost's functions ask of a type (epsilon, infinity, ..) is a static that the first call
// fills without a lock: first a flag that says it is filled, then the number. A second thread which
// comes in between reads 0 or 1 for epsilon, and its logarithm ends after two terms of the series.
// Boost fills those of one spelling of a type before main, and its functions ask another one. All
// are filled here, while there is one thread.
template <class Backend, boost::multiprecision::expression_template_option Templates>
bool fill_limits() {
  using Limits = std::numeric_limits<boost::multiprecision::number<Backend, Templates>>;
  static_cast<void>(Limits::epsilon());
  static_cast<void>(Limits::round_error());
  static_cast<void>(Limits::min());
  static_cast<void>(Limits::max());
  static_cast<void>(Limits::infinity());
  static_cast<void>(Limits::quiet_NaN());
  return true;
}

template <class Number>
bool fill_both_spellings() {
  using Backend = typename Number::backend_type;
  return fill_limits<Backend, boost::multiprecision::et_on>() &&
         fill_limits<Backend, boost::multiprecision::et_off>();
}

[[maybe_unused]] const bool kFilled = fill_both_spellings<Multi>() && fill_both_spellings<Wider>();

// Boost's generic functions throw or loop on infinities; these limits are plain mathematics.
Multi infinity() { return std::numeric_limits<Multi>::infinity(); }

}  // namespace

double exp(double x) { return std::exp(x); }
double exp2(double x) { return std::exp2(x); }
double log(double x) { return std::log(x); }
double log1p(double x) { return std::log1p(x); }
double square_root(double x) { return std::sqrt(x); }

Quad exp(const Quad& x) { return narrow(binary128::exp(widen(x))); }
Quad exp2(const Quad& x) { return narrow(binary128::exp2(widen(x))); }
Quad log(const Quad& x) { return narrow(binary128::log(widen(x))); }
Quad log1p(const Quad& x) { return narrow(binary128::log1p(widen(x))); }
Quad square_root(const Quad& x) { return sqrt(x); }

Multi exp(const Multi& x) {
  if (isnan(x)) return x;
  if (isinf(x)) return x > 0 ? x : Multi(0);
  // Boost's argument reduction loses |x| units, 3600 of them at x = -2661: ten digits more hold
  // them for every x whose exponential is neither 0 nor infinity.
  return static_cast<Multi>(boost::multiprecision::exp(Wider(x)));
}
Multi exp2(const Multi& x) {
  // Exact for integers; the product costs |x| units in the argument, which gate_error counts.
  if (!isfinite(x)) return exp(x);
  const Multi whole = floor(x);
  if (whole < -1000000) return Multi(0);
  if (whole > 1000000) return infinity();
  const Multi fraction = x - whole;
  return ldexp(exp(fraction * boost::math::constants::ln_two<Multi>()), static_cast<int>(whole));
}
Multi log(const Multi& x) {
  if (x == 0) return -infinity();
  if (!isfinite(x)) return x;
  return boost::multiprecision::log(x);
}
Multi log1p(const Multi& x) {
  if (!isfinite(x)) return x;
  return boost::math::log1p(x);
}
Multi square_root(const Multi& x) {
  if (!isfinite(x)) return x;
  return boost::multiprecision::sqrt(x);
}

}  // namespace goldenrule::scalar
