// SPDX-License-Identifier: Apache-2.0
//
// What the backward pass of the delta rule gives to the parts that know no operation.
#pragma once

#include "reference/verdict/slice.hpp"

namespace goldenrule::backward {

[[nodiscard]] const verdict::Slice& slice();

}  // namespace goldenrule::backward
