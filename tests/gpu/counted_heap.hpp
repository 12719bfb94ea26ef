// SPDX-License-Identifier: Apache-2.0
//
// Counts what a program takes from the heap: operator new and malloc are those of
// counted_heap.cpp, in every program that links it.
#pragma once

#include <cstdint>

namespace goldenrule::test {

/// Allocations of this thread so far.
[[nodiscard]] std::uint64_t heap_allocations();

}  // namespace goldenrule::test
