// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/emulation/kernel_lane.hpp"

#include <algorithm>
#include <cmath>

#include "reference/delta/emulation/perturbed_lane.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

double rounded(const contract::Rounding& rounding, double x) {
  return rounding ? round_to(*rounding, x) : x;
}

struct Gate {
  double alpha, log_alpha;
};

Gate kernel_gate(const Lane<double>& lane, std::int64_t t, std::size_t at,
                 const contract::Contract& c, const KernelChoices& h) {
  const contract::FunctionErrors& f = c.functions;
  const TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
  const double alpha = lane.alpha[at];
  const double log_alpha = lane.log_alpha[at];
  if (b.by_exp == 0.0) {  // alpha is given, or is 1, or nothing of it is left
    if (b.by_gate == 0.0) return {alpha, log_alpha};
    const double given = rounded(c.at(contract::Activation::kGate), alpha);
    if (c.chunked() == nullptr || given == 0.0 || given == 1.0) return {given, std::log(given)};
    // A chunked kernel cumulates the logarithm that it takes of it.
    const double log = std::log(given) * (1.0 + h.log_alpha * f.log_alpha) + h.softplus * f.log;
    return {std::exp(log) * (1.0 + h.exp * f.exp), log};
  }
  // The slope of softplus is exp(A_log), the same for all channels.
  const double moved = h.softplus * softplus_error(f, b.softplus_slope, std::fabs(log_alpha)) +
                       h.logit * weighted(logit_error(c, b), lane.logit_slope[at]);
  double kernel = log_alpha * (1.0 + h.log_alpha * f.log_alpha) + moved;
  if (log_alpha <= 0.0) kernel = std::min(kernel, 0.0);  // softplus is never negative
  kernel = rounded(c.at(contract::Activation::kGate), kernel);
  if (alpha == 0.0) return {0.0, kernel};
  return {std::exp(kernel) * (1.0 + h.exp * f.exp), kernel};
}

}  // namespace

KernelLane kernel_lane(const Lane<double>& lane, const contract::Contract& contract,
                       const KernelChoices& h) {
  const contract::FunctionErrors& f = contract.functions;
  KernelLane kernel{.given = lane.given,
                    .q = Matrix<float>(lane.tokens, lane.K),
                    .k = Matrix<float>(lane.tokens, lane.K),
                    .alpha = Matrix<float>(lane.tokens, lane.gates),
                    .log_alpha = Matrix<float>(lane.tokens, lane.gates),
                    .beta = std::vector<float>(static_cast<std::size_t>(lane.tokens))};
  const contract::Rounding key = contract.at(contract::Activation::kKey);
  const contract::Rounding query = contract.at(contract::Activation::kQuery);
  const contract::Rounding beta = contract.at(contract::Activation::kBeta);
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    // 0: the rows are the inputs themselves, or keys of a ring.
    const double norm = lane.k_error > 0.0 && t >= lane.given ? f.norm : 0.0;
    for (std::int64_t i = 0; i < lane.K; ++i) {
      kernel.k(t, i) = static_cast<float>(rounded(key, lane.k_row(t)[i] * (1.0 + h.norm_k * norm)));
      kernel.q(t, i) =
          static_cast<float>(rounded(query, lane.q_row(t)[i] * (1.0 + h.norm_q * norm)));
    }
    for (std::int64_t g = 0; g < lane.gates; ++g) {
      const auto at = static_cast<std::size_t>(t * lane.gates + g);
      const Gate gate = kernel_gate(lane, t, at, contract, h);
      kernel.alpha(t, g) = static_cast<float>(gate.alpha);
      kernel.log_alpha(t, g) = static_cast<float>(gate.log_alpha);
    }
    const TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
    const double of_beta = b.beta_computed ? h.sigmoid * (f.sigmoid + b.beta_logit * f.logit) : 0.0;
    kernel.beta[static_cast<std::size_t>(t)] =
        static_cast<float>(rounded(beta, lane.beta[static_cast<std::size_t>(t)] * (1.0 + of_beta)));
  }
  return kernel;
}

Lane<double> with_numbers_of(const Lane<double>& lane, const KernelLane& kernel) {
  Lane<double> changed = lane;
  for (std::size_t i = 0; i < changed.q.size(); ++i) {
    changed.q[i] = static_cast<double>(kernel.q.data()[i]);
    changed.k[i] = static_cast<double>(kernel.k.data()[i]);
  }
  for (std::size_t i = 0; i < changed.alpha.size(); ++i) {
    changed.alpha[i] = static_cast<double>(kernel.alpha.data()[i]);
    changed.log_alpha[i] = static_cast<double>(kernel.log_alpha.data()[i]);
  }
  for (std::size_t i = 0; i < changed.beta.size(); ++i) {
    changed.beta[i] = static_cast<double>(kernel.beta[i]);
  }
  return changed;
}

}  // namespace goldenrule::delta
