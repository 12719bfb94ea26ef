// SPDX-License-Identifier: Apache-2.0
//
// Programmatic dependent launch: one function per instruction. Both do nothing in a launch without
// the attribute, and the instructions exist from sm_90 on.
#pragma once

namespace goldenrule::gpu::ptx {

/// Lets the next kernel of the stream be scheduled once every block has come here.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Returns when the kernel before this one is complete and its writes are visible.
__device__ __forceinline__ void wait_for_dependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace goldenrule::gpu::ptx
