// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace goldenrule::gpu::ptx {

/// Loads behind it find nothing in L1 that lay there before: an acquire empties it (CCTL.IVALL).
__device__ __forceinline__ void forget_cached() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace goldenrule::gpu::ptx
