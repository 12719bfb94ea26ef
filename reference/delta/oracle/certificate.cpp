// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/certificate.hpp"

#include <cmath>

namespace goldenrule::delta {
namespace {

constexpr double kSecondOrder = 1.0 + 0x1p-6;
constexpr double kBoundArithmetic = 1.0 + 0x1p-46;

double norm_factor(std::int64_t K) { return 1.0 + static_cast<double>(K + 8) * 0x1p-53; }

}  // namespace

template <class S>
Certificate<S>::Certificate(const Lane<S>& lane, const Row& state2) : lane_(&lane) {
  for (std::size_t c = 0; c < state2.size(); ++c) {
    norm_[c] = std::sqrt(state2[c]) * norm_factor(lane.K);
  }
}

template <class S>
void Certificate<S>::advance(std::int64_t t, const ColumnNorms<S>& norms) {
  constexpr double u = scalar::Tier<S>::kUnitRoundoff;
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const auto n = static_cast<double>(lane_->K);
  const double gamma = n * u / (1.0 - n * u);
  const double grow = norm_factor(lane_->K);
  const double from_state = b.spectral * (b.alpha_error + u * b.alpha_max) +
                            b.beta * b.k_norm * b.k_norm * (gamma + lane_->k_error) * b.alpha_max;
  const double from_delta = b.k_norm * (lane_->k_error + b.beta_error + 3.0 * u);
  const double from_prediction =
      b.alpha_error + u * b.alpha_max + (gamma + lane_->k_error) * b.alpha_max;
  const double from_output = b.q_norm * (gamma + lane_->q_error);
  const double underflow =
      4.0 * n * scalar::Tier<S>::kUnderflow * (1.0 + b.k_norm) * (1.0 + b.beta);
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    const double norm = std::sqrt(norms.state2[c]) * grow;
    const double reached = b.alpha_max == 0.0 ? 0.0 : b.alpha_max * error_[c];
    const double predicted = reached + from_prediction * norm_[c] * kSecondOrder;
    correction_[c] =
        ((b.beta == 0.0 ? 0.0 : b.beta * b.k_norm * predicted) +
         (b.beta_error + 3.0 * u) * std::fabs(norms.delta[c]) * kSecondOrder + underflow) *
        kBoundArithmetic;
    const double local = from_state * norm_[c] + from_delta * std::fabs(norms.delta[c]) + u * norm;
    // An erased state carries no error, not even one without bound.
    const double carried = b.alpha_max == 0.0 ? 0.0 : b.spectral * b.alpha_max * error_[c];
    error_[c] = (carried + local * kSecondOrder + underflow) * kBoundArithmetic;
    output_[c] =
        (b.q_norm * error_[c] + from_output * norm * kSecondOrder + underflow) * kBoundArithmetic;
    norm_[c] = norm;
  }
}

template class Certificate<double>;
template class Certificate<scalar::Quad>;
template class Certificate<scalar::Multi>;

}  // namespace goldenrule::delta
