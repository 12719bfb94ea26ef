// SPDX-License-Identifier: Apache-2.0
//
// A kernel of the delta rule with another order of steps, written out apart from the generator that
// explanations ask (delta/mistakes/order.hpp): in fp32 as a kernel computes, in double as what it
// means.
#pragma once

#include <array>
#include <string_view>

#include "fixtures/call/record.hpp"

namespace goldenrule::suites {

/// Which state a step meets.
struct StepOrder {
  int predicts = 1;  ///< -1: none; an index of kStatesMet
  int leaves = 3;
  int reads = 3;
  bool operator==(const StepOrder&) const = default;
};
inline constexpr std::array<std::string_view, 5> kStatesMet{
    "the old state", "the decayed state", "the old state and the write",
    "the decayed state and the write", "the decay of state and write"};

/// Outputs in f64 of a kernel that computes in T. Of a call with linear gate, direct beta, no norm,
/// H = HV and states [K,V].
template <class T>
[[nodiscard]] call::TensorMap outputs_in_order(const call::Record& call, const StepOrder& order);

}  // namespace goldenrule::suites
