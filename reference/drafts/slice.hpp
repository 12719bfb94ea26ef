// SPDX-License-Identifier: Apache-2.0
//
// Acceptance of drafts as a slice: all that the neutral parts know of it.
#pragma once

#include "reference/verdict/slice.hpp"

namespace goldenrule::drafts {

[[nodiscard]] const verdict::Slice& slice();

}  // namespace goldenrule::drafts
