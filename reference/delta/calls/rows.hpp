// SPDX-License-Identifier: Apache-2.0
//
// Calls made from a call: other rows, other tokens, another mode. Numbers keep their type.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/record.hpp"
#include "fixtures/call/take.hpp"

namespace goldenrule::calls {

/// Every element x becomes f(flat index, x), rounded to the tensor's type.
void change(call::Tensor& tensor, const std::function<double(std::int64_t, double)>& f);

/// A call of the same mode with these sequences (rows), in this order, on the same pool.
[[nodiscard]] call::Record select_rows(const call::Record& record, const call::Plan& plan,
                                       std::span<const std::int64_t> rows);

/// Tokens [begin, begin + count) of a sequence.
struct Stretch {
  std::int64_t sequence = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// A call of mode `mode` whose row r runs stretches[r] from block stretches[r].sequence of `states`
/// [sequences,HV,state]; its state is block r of final_state. In decode and MTP all counts are
/// equal, in decode 1.
[[nodiscard]] call::Record stretch_call(const call::Record& record, const call::Plan& plan,
                                        call::Mode mode, std::span<const Stretch> stretches,
                                        const call::Tensor& states);

/// With state_indices that say what their absence says.
[[nodiscard]] call::Record with_explicit_slots(const call::Record& record);

}  // namespace goldenrule::calls
