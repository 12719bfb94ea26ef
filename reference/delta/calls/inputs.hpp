// SPDX-License-Identifier: Apache-2.0
//
// Changed calls: most mistakes are a kernel that is right about another call, and most relations
// compare two calls. Changed numbers are handed over as f64, so that nothing is rounded a second
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::calls {

/// Inputs and conventions of `record`; no outputs.
[[nodiscard]] call::Record without_outputs(const call::Record& record);

/// Replaces every element of input `name` by f(flat index, value), stored as f64.
void change_input(call::Record& record, const char* name,
                  const std::function<double(std::int64_t, double)>& f);

/// The call in which value head j reads q/k head map(j). A_log and dt_bias stay those of head j.
[[nodiscard]] call::Record with_qk_heads(const call::Record& record,
                                         const std::function<std::int64_t(std::int64_t)>& map);

/// The call in which flattened token t reads every input row of token source[t].
[[nodiscard]] call::Record with_tokens(const call::Record& record,
                                       const std::vector<std::int64_t>& source);

/// Tokens of the longest sequence.
[[nodiscard]] std::int64_t longest_sequence(const call::Record& record);
[[nodiscard]] inline bool is_prefill(const call::Record& record) {
  return record.mode == call::Mode::kPrefill;
}

}  // namespace goldenrule::calls
