// SPDX-License-Identifier: Apache-2.0
//
// Which slice serves an operation: the one place that knows them all.
#pragma once

#include <span>

#include "reference/verdict/slice.hpp"

namespace goldenrule::suites {

[[nodiscard]] const verdict::Slice& slice_of(call::Op op);

/// The mistakes of all of them, in one table, and the part of it that belongs to an operation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();
[[nodiscard]] std::span<const calls::Mistake> mistakes_of(call::Op op);

}  // namespace goldenrule::suites
