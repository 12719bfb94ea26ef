// SPDX-License-Identifier: Apache-2.0
//
// The forward call whose gradients a backward call gives.
#pragma once

#include "fixtures/call/record.hpp"

namespace goldenrule::backward {

[[nodiscard]] call::Record forward_call(const call::Record& record);
/// Its outputs by the oracle, in f64.
[[nodiscard]] call::TensorMap forward_outputs(const call::Record& record);

}  // namespace goldenrule::backward
