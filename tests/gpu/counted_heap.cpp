// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/counted_heap.hpp"

#include <cstddef>

namespace {

thread_local std::uint64_t allocations = 0;

}  // namespace

// operator new asks malloc, and so does what the C library does for others.
extern "C" {
void* __libc_malloc(std::size_t size);
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
}

namespace goldenrule::test {

std::uint64_t heap_allocations() { return allocations; }

}  // namespace goldenrule::test
