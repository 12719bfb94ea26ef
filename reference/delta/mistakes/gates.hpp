// SPDX-License-Identifier: Apache-2.0
//
// Changed gates and betas. Where a mistake changes what the gate or beta evaluates to, the new one
// is handed over as its logarithm or its logit: the kernel still evaluates functions, so a budget
// of the changed call still grants their errors. What has none (a negative alpha, a beta outside
// (0, 1)), or was given without, is handed over itself.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::delta {

/// One alpha of a call: key channel 0 stands for all of them unless the gates are per channel.
struct GatePlace {
  std::int64_t token = 0;  ///< flattened
  std::int64_t head = 0;
  std::int64_t channel = 0;
  double alpha = 1.0;
  double log_alpha = 0.0;  ///< natural; -infinity for alpha = 0
  double logit = 0.0;      ///< a + dt_bias for the gates that have one
  double input = 0.0;      ///< a or g
  double amplitude = 1.0;  ///< exp(A_log)
};

/// The call with alpha replaced by f(place). Its gate must not be `none`.
[[nodiscard]] call::Record with_alpha(const call::Record& record,
                                      const std::function<double(const GatePlace&)>& f);

/// Every alpha of the call: [tokens, HV, channels].
[[nodiscard]] std::vector<double> all_alphas(const call::Record& record);

/// The call with beta replaced by f(input b or beta, beta).
[[nodiscard]] call::Record with_beta(const call::Record& record,
                                     const std::function<double(double, double)>& f);

// What `applies` asks.

/// softplus or bounded: alpha comes from a, A_log and dt_bias.
[[nodiscard]] inline bool has_logit_gate(const call::Record& record) {
  return call::has_logit_gate(record.convention);
}
[[nodiscard]] inline bool has_gate(const call::Record& record) {
  return record.convention.gate != call::Gate::kNone;
}

}  // namespace goldenrule::delta
