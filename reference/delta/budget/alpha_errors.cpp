// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/alpha_errors.hpp"

#include <algorithm>
#include <cmath>

#include "reference/delta/emulation/perturbed_lane.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

// By what a kernel's alpha may err, given what makes it sensitive: of one gate, or of a token the
// largest of its gates.
struct Sensitivity {
  double alpha = 0.0, log_alpha = 0.0;  // their sizes
  double by_exp = 0.0, by_log = 0.0, by_logit = 0.0,
         by_rounded = 0.0;                // d alpha per relative error
  double by_softplus = 0.0, slope = 0.0;  // d alpha, d log alpha per softplus
};

Sensitivity largest_of(const TokenBounds& b) {
  return {.alpha = b.alpha_max,
          .log_alpha = b.log_alpha_max,
          .by_exp = b.by_exp,
          .by_log = b.by_log_alpha,
          .by_logit = b.by_logit,
          .by_rounded = b.by_gate,
          .by_softplus = b.by_softplus,
          .slope = b.softplus_slope};
}

Sensitivity of_gate(const Lane<double>& lane, std::int64_t t, std::int64_t g) {
  const TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
  const auto at = static_cast<std::size_t>(t * lane.gates + g);
  const double alpha = std::fabs(lane.alpha[at]);
  if (b.by_exp == 0.0) {  // given, or no gate, or nothing is left of any
    Sensitivity given;
    given.alpha = alpha;
    if (b.by_gate > 0.0) given.by_rounded = alpha;
    return given;
  }
  const double log_alpha = alpha == 0.0 ? 0.0 : std::fabs(lane.log_alpha[at]);
  return {.alpha = alpha,
          .log_alpha = log_alpha,
          .by_exp = alpha,
          .by_log = alpha * log_alpha,
          .by_logit = weighted(alpha, lane.logit_slope[at]),
          .by_rounded = alpha * log_alpha,
          .by_softplus = weighted(alpha, b.softplus_slope),
          .slope = b.softplus_slope};
}

// The error of softplus is absolute, so with a large exp(A_log) it is no small one of log alpha:
// alpha (e^x - 1), x = exp(A_log) times the error, and no more than 1, since neither alpha leaves
// [0, 1]; where softplus is too small for a kernel to see, x is |log alpha| itself. The other
// errors of log alpha are relative ones of at most 745, where alpha > 0.
double alpha_by_softplus(const contract::FunctionErrors& f, const Sensitivity& s) {
  const double x = softplus_error(f, s.slope, s.log_alpha);
  if (x == 0.0) return 0.0;
  const bool seen = s.log_alpha >= s.slope * 0x1p-24;
  const double first_order = seen ? s.by_softplus * f.softplus : s.by_log;
  return std::min(first_order * (std::expm1(x) / x), 1.0);
}

AlphaErrors errors_of(const contract::Contract& c, const TokenBounds& b, const Sensitivity& s) {
  const contract::FunctionErrors& f = c.functions;
  const double relative = s.by_exp * f.exp + s.by_log * f.log_alpha +
                          s.by_logit * logit_error(c, b) +
                          s.by_rounded * contract::unit_of(c.at(contract::Activation::kGate));
  const double error = relative + alpha_by_softplus(f, s);
  // A softplus that is too small makes alpha larger, but not larger than 1.
  return {.error = error, .largest = std::min(s.alpha + error, std::max(s.alpha, 1.0) + relative)};
}

}  // namespace

AlphaErrors alpha_errors(const contract::Contract& contract, const Lane<double>& lane,
                         std::int64_t t, std::int64_t g) {
  return errors_of(contract, lane.bounds[static_cast<std::size_t>(t)], of_gate(lane, t, g));
}

AlphaErrors alpha_errors(const contract::Contract& contract, const TokenBounds& bounds) {
  return errors_of(contract, bounds, largest_of(bounds));
}

}  // namespace goldenrule::delta
