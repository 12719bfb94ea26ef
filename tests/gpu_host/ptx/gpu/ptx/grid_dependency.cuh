// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/grid_dependency.cuh on the CPU.
#pragma once

#include "tests/gpu_host/simt/grid.hpp"

namespace goldenrule::gpu::ptx {

inline void launch_dependents() { simt::this_block().grid().let_next_begin(); }
inline void wait_for_dependencies() { simt::this_block().grid().wait_for_front(); }

}  // namespace goldenrule::gpu::ptx
