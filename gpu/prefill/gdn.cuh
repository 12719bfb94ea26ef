// SPDX-License-Identifier: Apache-2.0
//
// Chunked prefill of GDN on sm_90a, K = 128, bf16 q, k, v and o: three kernels, one behind
// the other, that meet in records of the workspace. The arithmetic of a value is the same however a
// block of the scan is made up.
#pragma once

#include "gpu/prefill/gdn_prepare.cuh"
#include "gpu/prefill/scan_block.cuh"

namespace goldenrule::gpu::prefill {

/// The parameters of all three kernels.
struct GdnCall {
  Params params;
  TileMaps maps;
  int records = 0;  ///< that the workspace has room for, per value head
};

inline constexpr int kGateWarps = 4;

/// One warp per record and value head.
template <bool kCheckpoints>
__global__ void __launch_bounds__(32 * kGateWarps)
    prefill_gdn_gates(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  ptx::wait_for_dependencies();
  const Params& p = call.params;
  const int index = static_cast<int>(blockIdx.x * kGateWarps + threadIdx.x / 32);
  const int record = p.by_heads.quotient(index);
  if (record >= call.records) return;
  const int hv = index - record * p.HV;
  const ChunkPlace at = place_of_record<kCheckpoints>(p, record, hv);
  if (at.count == 0) return;
  make_inputs(p, at, static_cast<int>(threadIdx.x) % 32,
              *reinterpret_cast<ChunkInputs*>(record_of(p, record, hv) + kRecordInputs));
#endif
}

/// One block per record and value head.
template <bool kCheckpoints>
__global__ void __launch_bounds__(128, 4)
    prefill_gdn_prepare(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  ptx::wait_for_dependencies();
  extern __shared__ __align__(1024) char memory[];
  GdnPreparation<kCheckpoints>(call.params, call.maps,
                               *reinterpret_cast<PreparationStorage*>(memory))
      .run();
#endif
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    prefill_gdn_scan(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  scan_block<C>(call.params, call.maps);
#endif
}

}  // namespace goldenrule::gpu::prefill
