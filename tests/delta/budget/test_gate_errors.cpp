// SPDX-License-Identifier: Apache-2.0
//
// The logarithm of a decay as a kernel in fp32 forms it, written out, beside what a ring is granted
// for it: gates of every form that has functions, with logits from nearly 0 to far beyond the range
// of a sigmoid, where a relative error of exp(A_log) is multiplied by the logit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "fixtures/random/philox.hpp"
#include "reference/delta/budget/ring_grant.hpp"
#include "reference/delta/rule/gate.hpp"
#include "reference/scalar/tier.hpp"

using namespace goldenrule;

namespace {

// Twice the error that a function of a GPU has in fp32: exp is ex2 of a rounded product.
float fast_exp(float x) { return std::exp2(x * 1.44269504F); }

float kernel_gate(const call::Convention& c, float a, float A_log, float dt_bias) {
  const float scale = fast_exp(A_log);
  const float x = a + dt_bias;
  if (c.gate == call::Gate::kBounded) {
    return static_cast<float>(c.lower_bound) / (1.0F + std::exp(-(scale * x)));
  }
  return -scale * (x > 20.0F ? x : std::log1p(std::exp(x)));
}

}  // namespace

TEST_CASE("gates: what a kernel in fp32 errs is granted") {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  constexpr std::int64_t kGates = 20000;
  for (const call::Gate form : {call::Gate::kBounded, call::Gate::kSoftplus}) {
    call::Convention c;
    c.gate = form;
    CAPTURE(form == call::Gate::kBounded);
    const random::Stream stream(7, "gates");
    std::int64_t compared = 0;
    double worst = 0.0;
    for (std::int64_t i = 0; i < kGates; ++i) {
      const auto a = static_cast<float>(stream.uniform(3 * i, -40.0, 20.0));
      const auto A_log = static_cast<float>(stream.uniform(3 * i + 1, -3.0, 2.0));
      const auto dt_bias = static_cast<float>(stream.uniform(3 * i + 2, -4.0, 4.0));
      const auto value = delta::gate<scalar::Quad>(
          c, static_cast<double>(a), static_cast<double>(A_log), static_cast<double>(dt_bias));
      const auto kernel = static_cast<double>(kernel_gate(c, a, A_log, dt_bias));
      if (std::fabs(value.log_alpha) < 0x1p-120) continue;  // where fp32 has no digits
      const delta::TokenBounds bounds{.scaled_logit = form == call::Gate::kBounded,
                                      .log_by_softplus = value.softplus_slope};
      const double granted =
          delta::gate_error(contract, c, bounds, value.log_alpha, value.logit_slope);
      worst = std::max(worst, std::fabs(kernel - value.log_alpha) / granted);
      ++compared;
    }
    CHECK(compared > kGates * 9 / 10);
    CHECK(worst < 1.0);
    CHECK(worst > 0.1);
  }
}
