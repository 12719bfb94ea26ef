// SPDX-License-Identifier: Apache-2.0
//
// Verification of drafts as a slice: all that the neutral parts know of it.
#pragma once

#include "reference/verdict/slice.hpp"

namespace goldenrule::verify {

[[nodiscard]] const verdict::Slice& slice();

}  // namespace goldenrule::verify
