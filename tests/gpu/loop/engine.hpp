// SPDX-License-Identifier: Apache-2.0
//
// Who computes the calls of the loop: the reference, whose outputs have bounds, or the kernels.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::test::loop {

/// An output in storage order. Bounds, of the reference alone: its own certified radius and what
/// the kernels' contract grants beside it, for each element.
struct Output {
  std::vector<double> values, bounds;
};

/// Computes the output `name` of a call; o and final_state are not wanted together.
using Engine = std::function<Output(const call::Record& record, const std::string& name)>;

[[nodiscard]] Output compute_exactly(const call::Record& record, const std::string& name);
/// By the kernels, through the C interface, in guarded memory. Throws Error on a stray write.
[[nodiscard]] Output compute_by_kernel(const call::Record& record, const std::string& name);

}  // namespace goldenrule::test::loop
