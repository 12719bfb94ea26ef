// SPDX-License-Identifier: Apache-2.0
//
// The known mistakes of delta-rule kernels, as one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "reference/calls/mistake.hpp"

namespace goldenrule::delta {

/// Every mistake, in the order of the documentation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();

}  // namespace goldenrule::delta
