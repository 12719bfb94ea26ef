// SPDX-License-Identifier: Apache-2.0
//
// libm is the witness here, to a few units in the last place; the fills themselves never call it.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "fixtures/random/philox.hpp"
#include "fixtures/random/portable_math.hpp"

using namespace goldenrule::random;

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

double relative(double actual, double expected) {
  return std::fabs(actual - expected) / std::fabs(expected);
}

template <class F>
double worst(double low, double high, F&& error_at) {
  const Stream stream(11, "math");
  double result = 0;
  for (int i = 0; i < 20000; ++i) {
    result = std::fmax(result, error_at(stream.uniform(i, low, high)));
  }
  return result;
}

}  // namespace

TEST_CASE("portable_exp and portable_log agree with libm to 4 ulp") {
  CHECK(worst(-708, 709, [](double x) { return relative(portable_exp(x), std::exp(x)); }) <
        4 * kEps);
  CHECK(worst(-1, 1, [](double x) { return relative(portable_exp(x), std::exp(x)); }) < 4 * kEps);
  CHECK(worst(-700, 700, [](double x) {
          const double y = std::exp(x);
          return relative(portable_log(y), std::log(y));
        }) < 4 * kEps);
  CHECK(worst(0.5, 2, [](double x) {
          return std::fabs(portable_log(x) - std::log(x)) / (std::fabs(std::log(x)) + 1e-300);
        }) < 8 * kEps);
  CHECK(portable_exp(0) == 1);
  CHECK(portable_log(1) == 0);
  CHECK(portable_exp(-800) == 0);
  CHECK(portable_exp(-std::numeric_limits<double>::infinity()) == 0);
  CHECK(std::isinf(portable_exp(800)));
}

TEST_CASE("normal_quantile inverts the normal distribution function") {
  // The relative condition of the distribution function in its tail is about x^2.
  const auto error_at = [](double log_p) {
    const double p = std::exp(log_p);
    const double x = normal_quantile(p);
    return relative(0.5 * std::erfc(-x / std::sqrt(2.0)), p) / (1 + x * x);
  };
  CHECK(worst(-36.7, -0.7, error_at) < 16 * kEps);  // 2^-53 to 1/2: all three ranges
  CHECK(normal_quantile(0.5) == 0);
  CHECK(normal_quantile(0.975) == doctest::Approx(1.959963984540054).epsilon(1e-15));
  CHECK(normal_quantile(0.25) == -normal_quantile(0.75));
}

TEST_CASE("softplus, sigmoid and their inverses") {
  CHECK(worst(-300, 100, [](double x) {
          const double expected = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
          return relative(softplus(x), expected);
        }) < 8 * kEps);
  // d log(softplus) / dx is at least 1/softplus above 0 and about 1 below: x comes back to a
  // relative error of softplus, times that condition.
  CHECK(worst(-30, 60, [](double x) {
          return std::fabs(inverse_softplus(softplus(x)) - x) / (1 + std::fabs(x));
        }) < 16 * kEps);
  CHECK(worst(-30, 15, [](double x) {
          return std::fabs(logit(sigmoid(x)) - x) * sigmoid(-x) / (1 + std::fabs(x));
        }) < 8 * kEps);
  CHECK(softplus(1e6) == 1e6);
  CHECK(inverse_softplus(1e6) == 1e6);
}
