// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/work.hpp"

#include <algorithm>

#include "fixtures/call/operation.hpp"

namespace goldenrule::delta {
namespace {

// Nanoseconds of one core, measured with heads of K = V of 1 to 128 on a shared machine and rounded
// up: what each step takes, and each gate of a token.
struct Cost {
  double step, gate;
};
constexpr double kRunStep = 8.0;

Cost cost_of(scalar::Precision tier) {
  switch (tier) {
    case scalar::Precision::kDouble:
      return {.step = 10.0, .gate = 1e3};
    case scalar::Precision::kQuad:
      return {.step = 40.0, .gate = 15e3};
    case scalar::Precision::kMulti:
      break;
  }
  return {.step = 1100.0, .gate = 200e3};
}

// Tokens of all heads.
double lane_tokens(const call::Record& record, const call::Plan& plan) {
  double tokens = 0.0;
  for (const call::Sequence& s : plan.sequences) {
    if (s.padded) continue;
    const auto n = static_cast<double>(s.lane_tokens());
    tokens += call::has_tree(record) ? n * (n + 1.0) / 2.0 : n;
  }
  return tokens * static_cast<double>(plan.dims.HV);
}

}  // namespace

double steps_of(const call::Record& record, const call::Plan& plan, std::int64_t chunk) {
  constexpr std::int64_t kTile = 8;
  const auto K = static_cast<double>(plan.dims.K);
  const auto W = static_cast<double>(std::max(plan.dims.V, kTile));
  const auto C = static_cast<double>(chunk);
  return lane_tokens(record, plan) * (K * W + C * (K + W + C / 3.0));
}

double evaluation_seconds(const call::Record& record, const call::Plan& plan, std::int64_t chunk,
                          scalar::Precision tier) {
  const Cost cost = cost_of(tier);
  const auto gates = static_cast<double>(record.op == call::Op::kKda ? plan.dims.K : 1);
  return 1e-9 * (steps_of(record, plan, chunk) * cost.step +
                 lane_tokens(record, plan) * (gates + 1.0) * cost.gate);
}

double run_seconds(double steps) { return 1e-9 * kRunStep * steps; }

}  // namespace goldenrule::delta
