// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/nonfinite_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace goldenrule::delta {
namespace {

// -inf is the logarithm of a decay of 0.
bool is_gate(double log_alpha) {
  return !std::isnan(log_alpha) && log_alpha < std::numeric_limits<double>::infinity();
}

// Makes token t do nothing if a number of it is not finite. False where it was.
bool mask_rule_inputs(Lane<double>& lane, std::int64_t t) {
  const std::span k(lane.k.data() + t * lane.K, static_cast<std::size_t>(lane.K));
  const std::span alpha(lane.alpha.data() + t * lane.gates, static_cast<std::size_t>(lane.gates));
  const std::span logs(lane.log_alpha.data() + t * lane.gates, alpha.size());
  double& beta = lane.beta[static_cast<std::size_t>(t)];
  const auto is_finite = [](double x) { return std::isfinite(x); };
  if (std::isfinite(beta) && std::ranges::all_of(k, is_finite) &&
      std::ranges::all_of(alpha, is_finite) && std::ranges::all_of(logs, is_gate)) {
    return true;
  }
  std::ranges::fill(k, 0.0);
  std::ranges::fill(alpha, 1.0);
  std::ranges::fill(logs, 0.0);
  std::fill_n(lane.logit_slope.begin() + t * lane.gates, lane.gates, 0.0);
  beta = 0.0;
  lane.bounds[static_cast<std::size_t>(t)] = {};
  return false;
}

// The first token of the chunk of token t: of any of the chunks that it may stand in.
std::int64_t first_of_chunk(std::int64_t t, std::span<const std::int64_t> positions,
                            std::int64_t chunk) {
  std::int64_t first = t / chunk * chunk;
  for (const std::int64_t begin : positions) {
    if (begin <= t) first = std::min(first, begin + (t - begin) / chunk * chunk);
  }
  return first;
}

}  // namespace

std::vector<std::int64_t> mask_nonfinite(LaneCall& call, std::int64_t chunk) {
  const std::int64_t tokens = call.lane.tokens;
  std::vector<std::int64_t> lost(static_cast<std::size_t>(call.v.cols()), tokens);
  const auto lose_from = [&](std::int64_t t, std::int64_t x) {
    std::int64_t& first = lost[static_cast<std::size_t>(x)];
    first = std::min(first, first_of_chunk(t, call.positions, chunk));
  };
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool is_clean = mask_rule_inputs(call.lane, t);
    const std::span q(call.lane.q.data() + t * call.lane.K, static_cast<std::size_t>(call.lane.K));
    for (double& y : q) {
      if (!std::isfinite(y)) y = 0.0;
    }
    for (std::int64_t x = 0; x < call.v.cols(); ++x) {
      const bool is_number = std::isfinite(call.v(t, x));
      if (!is_clean || !is_number) lose_from(t, x);
      if (!is_number) call.v(t, x) = 0.0;
    }
  }
  call.start = call.start.unaryExpr([](double s) { return std::isfinite(s) ? s : 0.0; });
  return lost;
}

}  // namespace goldenrule::delta
