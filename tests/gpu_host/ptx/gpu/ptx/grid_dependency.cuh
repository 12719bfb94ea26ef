// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/grid_dependency.cuh on the CPU: a dependent kernel always begins before the one in front
// of it, triggered or not.
#pragma once

#include "tests/gpu_host/simt/grid.hpp"

namespace goldenrule::gpu::ptx {

inline void launch_dependents() {}
inline void wait_for_dependencies() { simt::this_block().grid().wait_for_predecessor(); }

}  // namespace goldenrule::gpu::ptx
