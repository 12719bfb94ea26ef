// SPDX-License-Identifier: Apache-2.0
//
// Shared memory: one window for the block that runs. The arrays that kernels declare with `extern
// __shared__` are other names of it (shared_memory.cpp). A shared address is a place in the window.
#pragma once

#include <cstddef>
#include <cstdint>

namespace goldenrule::simt {

inline constexpr std::size_t kSharedBytes = 227 << 10;  ///< of a block of sm_90

[[nodiscard]] std::byte* shared_window();
/// AddressSanitizer sees accesses to the window behind its first `bytes` bytes.
void close_window_behind(std::size_t bytes);

[[nodiscard]] std::uint32_t shared_address(const void* p);
[[nodiscard]] std::byte* shared_pointer(std::uint32_t address);

}  // namespace goldenrule::simt
