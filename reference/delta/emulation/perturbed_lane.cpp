// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/perturbed_lane.hpp"
#include "reference/delta/rule/gate.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/random/philox.hpp"

namespace goldenrule::delta {
namespace {

// One error of a function: a systematic error of `sign` and, in a random run, scatter.
class FunctionScatter {
 public:
  FunctionScatter(const Perturbation& p, const char* name)
      : random_(p.random), stream_(p.seed, std::string(name) + std::to_string(p.stream)) {}

  [[nodiscard]] double operator()(double sign, std::int64_t index) const {
    return sign + (random_ ? stream_.uniform(index, -1.0, 1.0) : 0.0);
  }

 private:
  bool random_;
  random::Stream stream_;
};

// alpha of one channel moved by `sign` times the errors of its functions and of its rounding.
// Softplus is never negative, whatever its error, so alpha grows beyond 1 by the error of exp
// alone.
double moved_alpha(double alpha, double log_alpha, double logit_slope, const TokenBounds& b,
                   const contract::Contract& c, double sign) {
  const double rounded = contract::unit_of(c.at(contract::Activation::kGate));
  if (alpha == 0.0) return alpha;
  const contract::FunctionErrors& f = c.functions;
  if (b.by_exp == 0.0) {
    if (b.by_gate == 0.0) return alpha;  // no gate
    // alpha is given. A chunked kernel cumulates its logarithm.
    // The logarithm of 1 is 0 everywhere.
    const double log = c.chunked() != nullptr && alpha != 1.0
                           ? f.log + f.exp + std::fabs(log_alpha) * f.log_alpha
                           : 0.0;
    return alpha * std::exp(sign * log) * (1.0 + sign * rounded);
  }
  const double size = std::fabs(alpha);
  const double exponent = std::fabs(log_alpha) * (f.log_alpha + rounded) +
                          softplus_error(f, b.softplus_slope, std::fabs(log_alpha));
  double moved =
      size * std::exp(sign * exponent) + sign * weighted(size, logit_slope) * logit_error(c, b);
  moved = std::clamp(moved, 0.0, std::max(size, 1.0));
  return std::copysign(moved * (1.0 + sign * f.exp), alpha);
}

}  // namespace

Lane<double> perturbed_lane(const Lane<double>& lane, const contract::Contract& contract,
                            const Perturbation& p) {
  const contract::FunctionErrors& f = contract.functions;
  Lane<double> moved = lane;
  const FunctionScatter alpha(p, "alpha/");
  const FunctionScatter channel(p, "channel/");
  const FunctionScatter beta(p, "beta/");
  const FunctionScatter key(p, "key/");
  const FunctionScatter query(p, "query/");
  const FunctionScatter key_element(p, "key element/");
  const FunctionScatter query_element(p, "query element/");
  const double norm = lane.k_error > 0.0 ? f.norm : 0.0;  // 0: the rows are the inputs themselves
  // A chunked kernel rounds q^ and k^ itself, with the other operands of its products.
  const auto rounded_row = [&](contract::Activation row) {
    return contract.chunked() != nullptr ? 0.0 : contract::unit_of(contract.at(row));
  };
  const double rounded_key = rounded_row(contract::Activation::kKey);
  const double rounded_query = rounded_row(contract::Activation::kQuery);
  const double rounded_beta = contract::unit_of(contract.at(contract::Activation::kBeta));
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    const TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
    for (std::int64_t g = 0; g < lane.gates; ++g) {
      double sign = alpha(p.alpha, t * lane.gates + g);
      if (lane.gates > 1) sign += channel(0.0, g);
      const auto at = static_cast<std::size_t>(t * lane.gates + g);
      moved.alpha[at] =
          moved_alpha(lane.alpha[at], lane.log_alpha[at], lane.logit_slope[at], b, contract, sign);
    }
    const double of_beta =
        (b.beta_computed ? f.sigmoid + b.beta_logit * f.logit : 0.0) + rounded_beta;
    moved.beta[static_cast<std::size_t>(t)] *= 1.0 + beta(p.beta, t) * of_beta;
    const double of_key = t < lane.given ? 1.0 : 1.0 + key(p.key, t) * norm;
    const double of_query = 1.0 + query(0.0, t) * norm;
    for (std::int64_t i = 0; i < lane.K; ++i) {
      const std::int64_t at = t * lane.K + i;
      double& k = moved.k[static_cast<std::size_t>(at)];
      double& q = moved.q[static_cast<std::size_t>(at)];
      k *= of_key;
      q *= of_query;
      if (rounded_key > 0.0) k *= 1.0 + rounded_key * key_element(0.0, at);
      if (rounded_query > 0.0) q *= 1.0 + rounded_query * query_element(0.0, at);
    }
  }
  return moved;
}

}  // namespace goldenrule::delta
