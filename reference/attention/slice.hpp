// SPDX-License-Identifier: Apache-2.0
//
// Attention as a slice: all that the neutral parts know of it.
#pragma once

#include "reference/verdict/slice.hpp"

namespace goldenrule::attention {

[[nodiscard]] const verdict::Slice& slice();

}  // namespace goldenrule::attention
