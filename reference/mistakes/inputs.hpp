// SPDX-License-Identifier: Apache-2.0
//
// Changed calls: most mistakes are a kernel that is right about another call. Changed numbers are
// handed over as f64, so that nothing is rounded a second time. Where a mistake changes what the
// gate or beta evaluates to, the new one is handed over as its logarithm or its logit: the kernel
// still evaluates functions, so a budget of the changed call still grants their errors. What has
// none (a negative alpha, a beta outside (0, 1)), or was given without, is handed over itself.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::mistakes {

/// Inputs and conventions of `record`; no outputs.
[[nodiscard]] call::Record without_outputs(const call::Record& record);

/// Replaces every element of input `name` by f(flat index, value), stored as f64.
void change_input(call::Record& record, const char* name,
                  const std::function<double(std::int64_t, double)>& f);

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

/// The call in which value head j reads q/k head map(j). A_log and dt_bias stay those of head j.
[[nodiscard]] call::Record with_qk_heads(const call::Record& record,
                                         const std::function<std::int64_t(std::int64_t)>& map);

/// The call in which flattened token t reads every input row of token source[t].
[[nodiscard]] call::Record with_tokens(const call::Record& record,
                                       const std::vector<std::int64_t>& source);

// What `applies` asks.

/// Tokens of the longest sequence.
[[nodiscard]] std::int64_t longest_sequence(const call::Record& record);
/// softplus or bounded: alpha comes from a, A_log and dt_bias.
[[nodiscard]] inline bool has_logit_gate(const call::Record& record) {
  return call::has_logit_gate(record.convention);
}
[[nodiscard]] inline bool has_gate(const call::Record& record) {
  return record.convention.gate != call::Gate::kNone;
}
[[nodiscard]] inline bool is_prefill(const call::Record& record) {
  return record.mode == call::Mode::kPrefill;
}

}  // namespace goldenrule::mistakes
