// SPDX-License-Identifier: Apache-2.0
//
// What a call may write, by its plan; everything else has to keep its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::test {

/// Which blocks [HV,state] a call may write, and whether o. kept_states: intermediate_states or
/// checkpoints; rings: places, W of each ring.
struct WriteSet {
  bool o = true;
  std::vector<bool> final_state, kept_states, rings = {};
};
/// The place, among those of all rings, of element i of a tensor [J,heads,W,..].
[[nodiscard]] std::size_t place_of_element(const call::Shape& shape, std::size_t i);

/// Blocks of intermediate_states or checkpoints.
[[nodiscard]] std::int64_t kept_blocks(const call::Record& record, const call::Dims& dims);

/// By the plan of the call.
[[nodiscard]] WriteSet writes_of(const call::Record& record);

}  // namespace goldenrule::test
