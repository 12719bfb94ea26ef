// SPDX-License-Identifier: Apache-2.0
//
// The delta rule (Gated DeltaNet, Kimi Delta Attention) as a slice: all that the neutral parts know
// of it.
#pragma once

#include "reference/verdict/slice.hpp"

namespace goldenrule::delta {

[[nodiscard]] const verdict::Slice& slice();

}  // namespace goldenrule::delta
