// SPDX-License-Identifier: Apache-2.0
//
// Which slice serves an operation: the one place that knows them all.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "reference/verdict/slice.hpp"

namespace goldenrule::suites {

[[nodiscard]] const verdict::Slice& slice_of(call::Op op);

/// The mistakes of all of them, in one table, and the part of it that belongs to an operation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();
[[nodiscard]] std::span<const calls::Mistake> mistakes_of(call::Op op);

/// Slice::telling_suites of all of them.
[[nodiscard]] std::vector<std::string_view> telling_suites();

}  // namespace goldenrule::suites
