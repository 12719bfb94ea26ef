// SPDX-License-Identifier: Apache-2.0
//
// One launch. By cudaLaunchKernelExC and not by <<<>>>: that answers with the error of this launch,
// where cudaGetLastError would hand out, and clear, one that somebody else has left.
#pragma once

#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu {

struct Grid {
  unsigned blocks = 0, threads = 0;
  unsigned shared_bytes = 0;  ///< dynamic
  /// Blocks of a cluster; divides `blocks`. 0: without clusters, which is not a cluster of one:
  /// synccheck takes the barrier of a cluster for that of a block where none was asked for.
  unsigned cluster = 0;
  bool dependent = false;  ///< programmatic dependent launch
};

/// `arguments`: the address of each parameter of `function`; `stream` is a cudaStream_t.
[[nodiscard]] Problem launch_kernel(const void* function, const Grid& grid, void** arguments,
                                    void* stream);

/// Loads a kernel that stands in no table; a later call finds it loaded.
[[nodiscard]] Problem load_kernel(const void* function, const char* name);

/// Whether this answer says that the library has no code of a kernel for the device.
[[nodiscard]] bool has_no_code(cudaError_t error);

}  // namespace goldenrule::gpu
