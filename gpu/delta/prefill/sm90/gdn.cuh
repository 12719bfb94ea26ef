// SPDX-License-Identifier: Apache-2.0
//
// Chunked prefill of GDN on sm_90a, K = 128, bf16 q, k, v and o: three kernels, one behind
// the other, that meet in records of the workspace. The arithmetic of a value is the same however a
// block is made up and whichever block does the work.
//
// The scan begins as soon as every block of the preparation has, on multiprocessors that those
// leave free, and waits for records one by one. At its end it waits for the preparation to be
// complete, so whatever follows the call finds nobody at work in the workspace.
#pragma once

#include "gpu/delta/prefill/sm90/gdn_prepare.cuh"
#include "gpu/delta/prefill/sm90/scan_block.cuh"

namespace goldenrule::gpu::prefill {

/// The parameters of all three kernels.
struct GdnCall {
  Params params;
  TileMaps maps;
  PreparationUnits units;
  int records = 0;  ///< that the workspace has room for, per value head
};

inline constexpr int kGateWarps = 4;

/// Puts sequence n where its length belongs, the longest first, by one warp.
__device__ __forceinline__ void sort_sequence(const Params& p, int n, int* order) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = tokens_of(p, n).count;
  int before = 0;
  for (int m = lane; m < p.N; m += 32) {
    const int other = tokens_of(p, m).count;
    before += other > count || (other == count && m < n) ? 1 : 0;
  }
  before = __reduce_add_sync(kAllLanes, before);
  if (lane == 0) order[before] = n;
}

/// One warp per record and value head, and behind those one per sequence that is to be sorted or
/// cut.
template <bool kCheckpoints>
__global__ void __launch_bounds__(32 * kGateWarps)
    prefill_gdn_gates(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  ptx::wait_for_dependencies();
  const Params& p = call.params;
  if (blockIdx.x == 0 && threadIdx.x == 0) tickets_of(p) = {};
  const int index = static_cast<int>(blockIdx.x * kGateWarps + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int record = p.by_heads.quotient(index);
  if (record >= call.records) {
    const int n = index - call.records * p.HV;
    if (n >= p.N) return;
    if (p.order != nullptr) sort_sequence(p, n, const_cast<int*>(p.order));
    if (p.most_segments > 0) list_segments(p, n);
    return;
  }
  const int hv = index - record * p.HV;
  const ChunkPlace at = place_of_record<kCheckpoints>(p, record, hv);
  char* to = record_of(p, record, hv);
  if (lane == 0) head_of(to) = {at.first, at.count, at.count == 0 ? 1 : 0};
  if (at.count == 0) return;
  make_inputs(p, at, lane, *reinterpret_cast<ChunkInputs*>(to + kRecordInputs));
#endif
}

__global__ void __launch_bounds__(kPreparationThreads, 1)
    prefill_gdn_prepare(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char memory[];
  auto* storage = reinterpret_cast<PreparationStorage*>(memory);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kPreparationGroups; ++i) {
      ptx::initialize_barrier(storage[i].loaded, 2);
      ptx::initialize_barrier(storage[i].done, 128);
    }
  }
  ptx::fence_async_readers();
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  __syncthreads();
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4 * kPreparationGroups) {
    prepare_units(call.params, storage[warp / 4], warp / 4);
  } else if (threadIdx.x % 32 == 0) {
    UnitSupply(call.params, call.maps, call.units, storage[warp - 4 * kPreparationGroups]).run();
  }
#endif
}

/// Also of the maps of segments.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    prefill_gdn_scan(const __grid_constant__ GdnCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  scan_block<C>(call.params, call.maps);
#endif
}

}  // namespace goldenrule::gpu::prefill
