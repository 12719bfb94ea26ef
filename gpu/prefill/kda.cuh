// SPDX-License-Identifier: Apache-2.0
//
// Chunked prefill of KDA on sm_90a, K = 128, bf16 q, k, v and o: two kernels, one behind the
// other, that meet in records of the workspace. The arithmetic of a value is the same however a
// block of the scan is made up.
#pragma once

#include "gpu/prefill/kda_prepare.cuh"
#include "gpu/prefill/scan_block.cuh"

namespace goldenrule::gpu::prefill {

/// The parameters of both kernels.
struct KdaCall {
  Params params;
  TileMaps maps;
};

/// One block per record and value head.
template <bool kAnchored, bool kCheckpoints>
__global__ void __launch_bounds__(128, KdaPreparationStorage<kAnchored>::kBlocks)
    prefill_kda_prepare(const __grid_constant__ KdaCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  ptx::wait_for_dependencies();
  extern __shared__ __align__(1024) char memory[];
  KdaPreparation<kAnchored, kCheckpoints>(
      call.params, call.maps, *reinterpret_cast<KdaPreparationStorage<kAnchored>*>(memory))
      .run();
#endif
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    prefill_kda_scan(const __grid_constant__ KdaCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  scan_block<C>(call.params, call.maps);
#endif
}

}  // namespace goldenrule::gpu::prefill
