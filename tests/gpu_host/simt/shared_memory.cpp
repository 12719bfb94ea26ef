// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/shared_memory.hpp"

#include "tests/gpu_host/simt/grid.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

// 1024 is what the pattern of tiles asks for, and more than any kernel declares.
extern "C" {
alignas(1024) thread_local unsigned char goldenrule_simt_window[goldenrule::simt::kSharedBytes];
}

// A kernel that names its array otherwise fails to link, and needs a line here.
#define SAME_AS_WINDOW __attribute__((alias("goldenrule_simt_window")))
namespace goldenrule::gpu {
namespace recurrent {
extern thread_local unsigned char shared[simt::kSharedBytes] SAME_AS_WINDOW;
extern thread_local unsigned char mtp_shared[simt::kSharedBytes] SAME_AS_WINDOW;
}  // namespace recurrent
namespace attention {
extern thread_local unsigned char attention_shared[simt::kSharedBytes] SAME_AS_WINDOW;
}
namespace prefill {
extern thread_local unsigned char shared[simt::kSharedBytes] SAME_AS_WINDOW;
extern thread_local char memory[simt::kSharedBytes] SAME_AS_WINDOW;
}  // namespace prefill
}  // namespace goldenrule::gpu

namespace goldenrule::simt {

std::byte* shared_window() { return reinterpret_cast<std::byte*>(goldenrule_simt_window); }

void close_window_behind([[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(shared_window(), kSharedBytes);
  __asan_poison_memory_region(shared_window() + bytes, kSharedBytes - bytes);
#endif
}

std::uint32_t shared_address(const void* p) {
  const auto at = static_cast<const std::byte*>(p) - shared_window();
  if (at < 0 || at >= static_cast<std::ptrdiff_t>(kSharedBytes)) {
    fail("an address that is not in shared memory is taken for one");
  }
  return static_cast<std::uint32_t>(at);
}

std::byte* shared_pointer(std::uint32_t address) {
  if (address >= kSharedBytes) fail("a shared address lies beyond the window");
  return shared_window() + address;
}

}  // namespace goldenrule::simt
