// SPDX-License-Identifier: Apache-2.0
//
// Chunked prefill of KDA on sm_90a, K = 128, bf16 q, k, v and o: three kernels, one behind the
// other, that meet in records of the workspace. The arithmetic of a value is the same however a
// block of the scan is made up and whichever block does the work.
//
// All multiprocessors prepare the first records. Then blocks of the preparation leave, and the scan
// takes their multiprocessors and waits for the other records one by one. Nobody who prepares waits
// for anything but the copy engine, and no block of the scan begins before every block of the
// preparation has (launch_dependents), so a block that waits for a record always gets it. At its
// end the scan waits for the preparation to be complete.
#pragma once

#include "gpu/delta/prefill/sm90/kda_prepare.cuh"
#include "gpu/delta/prefill/sm90/scan_block.cuh"

namespace goldenrule::gpu::prefill {

/// The parameters of all three kernels.
struct KdaCall {
  Params params;
  TileMaps maps;
  int records = 0;        ///< that the workspace has room for, times the value heads
  int record_blocks = 0;  ///< of the first kernel
  int first = 0;          ///< of them that all blocks prepare,
  int staying = 0;        ///< and the blocks that prepare the rest
};

inline constexpr int kPlacesThreads = 128;

/// The head of each record, one thread each: where its chunk is, and that it is not there yet. The
/// blocks behind those list segments, a warp for each sequence.
template <bool kCheckpoints>
__global__ void __launch_bounds__(kPlacesThreads)
    prefill_kda_places(const __grid_constant__ KdaCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  ptx::wait_for_dependencies();
  const Params& p = call.params;
  const int block = static_cast<int>(blockIdx.x), first = call.record_blocks;
  if (block >= first) {
    const int n = (block - first) * (kPlacesThreads / 32) + static_cast<int>(threadIdx.x) / 32;
    if (n < p.N) list_segments(p, n);
    return;
  }
  const int index = block * kPlacesThreads + static_cast<int>(threadIdx.x);
  if (index >= call.records) return;
  const int record = p.by_heads.quotient(index);
  const int hv = index - record * p.HV;
  const ChunkPlace at = place_of_record<kCheckpoints, kKdaChunk>(p, record, hv);
  head_of<kKdaRecordHead>(record_of<kKdaRecordBytes>(p, record, hv)) = {at.first, at.count,
                                                                        at.count == 0 ? 1 : 0};
#endif
}

template <bool kBounded>
__global__ void __launch_bounds__(kKdaPreparationThreads<kBounded>, 1)
    prefill_kda_prepare(const __grid_constant__ KdaCall call) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char memory[];
  constexpr int kGroups = kKdaGroups<kBounded>;
  auto* storage = reinterpret_cast<KdaPreparationStorage*>(memory);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      ptx::initialize_barrier(storage[i].loaded, 1 + 32);
      ptx::initialize_barrier(storage[i].inverted, kKdaGroupThreads - 32);
    }
  }
  ptx::fence_async_readers();
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  __syncthreads();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kKdaGroupThreads, 0);
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  KdaPreparation<kBounded>(call.params, call.maps, storage[group], group)
      .run({.index = group * blocks + block,
            .step = kGroups * blocks,
            .end = call.first,
            .rest = block < call.staying ? call.first + group * call.staying + block : call.records,
            .rest_step = kGroups * call.staying,
            .count = call.records});
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
