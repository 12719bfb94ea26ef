// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/fence.cuh on the CPU, where threads have no cache of their own.
#pragma once

namespace goldenrule::gpu::ptx {

inline void forget_cached() {}

}  // namespace goldenrule::gpu::ptx
