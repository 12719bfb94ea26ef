// SPDX-License-Identifier: Apache-2.0
//
// Gates where exp(A_log), softplus or the logit leave the range of double: every tier stays finite
// for finite inputs, and its bound encloses the widest one.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "reference/delta/rule/gate.hpp"

using namespace goldenrule;
using delta::alpha_error;
using delta::gate;
using scalar::Multi;
using scalar::Quad;
using scalar::to_double;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class S>
void check_enclosed(const call::Convention& c, double a, double A_log, double dt_bias) {
  const auto narrow = gate<S>(c, a, A_log, dt_bias);
  const auto wide = gate<Multi>(c, a, A_log, dt_bias);
  const double error = alpha_error(narrow);
  CHECK(std::isfinite(to_double(narrow.alpha)));
  CHECK(std::isfinite(to_double(wide.alpha)));
  CHECK(error >= 0.0);
  CHECK(error <= 1.0);
  CHECK(narrow.logit_slope >= 0.0);
  // The conversions to double for this comparison round too.
  const double distance = std::fabs(to_double(narrow.alpha) - to_double(wide.alpha));
  CHECK(distance <= (error + alpha_error(wide)) * (1 + 0x1p-6) + to_double(wide.alpha) * 0x1p-52);
}

}  // namespace

TEST_CASE("gates at the ends of their range: every tier encloses the widest") {
  for (const call::Gate form : {call::Gate::kSoftplus, call::Gate::kBounded}) {
    call::Convention c;
    c.gate = form;
    for (const double A_log : {-1000.0, -700.0, -50.0, 0.0, 30.0, 300.0, 709.0, 720.0, 1000.0}) {
      for (const double a : {-2000.0, -1000.0, -800.0, -720.0, -201.0, -199.0, -30.0, -1.0, 0.0,
                             1e-300, 1.0, 19.0, 21.0, 1000.0, 1e300}) {
        for (const double dt_bias : {0.0, 0.25}) {
          CAPTURE(A_log);
          CAPTURE(a);
          CAPTURE(dt_bias);
          check_enclosed<double>(c, a, A_log, dt_bias);
          check_enclosed<Quad>(c, a, A_log, dt_bias);
        }
      }
    }
  }
}

TEST_CASE("gates at the ends of their range: products that cancel") {
  // exp(1000) softplus(-1000) = 1 but for e^-1000 / 2: alpha = e^-1, off by some 1000 u.
  call::Convention c;
  const auto value = gate<double>(c, -1000.0, 1000.0, 0.0);
  CHECK(value.alpha == doctest::Approx(std::exp(-1.0)).epsilon(1e-12));
  CHECK(alpha_error(value) > 1e-14);
  CHECK(alpha_error(value) < 1e-11);
  // So far out nothing is known of the difference of two numbers of 1e300, and this is said.
  CHECK(alpha_error(gate<double>(c, -1e300, 1e300, 0.0)) == 1.0);
  CHECK(alpha_error(gate<Multi>(c, -1e300, 1e300, 0.0)) == 1.0);
}

TEST_CASE("gates at the ends of their range: infinite inputs are limits") {
  const struct {
    call::Gate form;
    double a, A_log, alpha;
  } rows[] = {{call::Gate::kSoftplus, -kInf, 0.0, 1.0},
              {call::Gate::kSoftplus, kInf, 0.0, 0.0},
              {call::Gate::kSoftplus, 1.0, -kInf, 1.0},
              {call::Gate::kSoftplus, 1.0, kInf, 0.0},
              {call::Gate::kBounded, -kInf, 0.0, 1.0},
              {call::Gate::kBounded, kInf, 0.0, std::exp(-5.0)},
              {call::Gate::kBounded, 1.0, kInf, std::exp(-5.0)}};
  for (const auto& row : rows) {
    CAPTURE(row.a);
    CAPTURE(row.A_log);
    call::Convention c;
    c.gate = row.form;
    const auto check = [&](const auto& value) {
      CHECK(to_double(value.alpha) == doctest::Approx(row.alpha));
      CHECK(alpha_error(value) < 1e-14);
      CHECK(std::isfinite(delta::weighted(to_double(value.alpha), value.logit_slope)));
    };
    check(gate<double>(c, row.a, row.A_log, 0.0));
    check(gate<Quad>(c, row.a, row.A_log, 0.0));
    check(gate<Multi>(c, row.a, row.A_log, 0.0));
  }
  // Where the limit depends on the way there is none.
  call::Convention c;
  CHECK(std::isnan(gate<double>(c, -kInf, kInf, 0.0).alpha));
  CHECK(std::isnan(gate<double>(c, std::nan(""), 0.0, 0.0).alpha));
  CHECK(std::isnan(gate<double>(c, 1.0, std::nan(""), 0.0).alpha));
}
