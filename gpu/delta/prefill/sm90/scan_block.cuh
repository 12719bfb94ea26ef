// SPDX-License-Identifier: Apache-2.0
//
// A block of a scan: one group of four warps serves, the others scan 64 values each.
#pragma once

#include "gpu/delta/prefill/sm90/gdn_scan.cuh"
#include "gpu/delta/prefill/sm90/gdn_service.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::prefill {

/// What the panels of a record leave out; nothing else writes there.
template <class C>
__device__ __forceinline__ void clear_above_diagonal(ScanStorage<C>& s) {
#pragma unroll 1
  for (int i = 0; i < C::kStages; ++i) {
#pragma unroll 1
    for (int panel = 1; panel < kPanels; ++panel) {
      char* to = s.prepared[i].panels + panel * kPanelBytes;
      for (int at = static_cast<int>(threadIdx.x) * 16; at < panel * kPanelStep;
           at += C::kThreads * 16) {
        *reinterpret_cast<uint4*>(to + at) = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

/// Every lane arrives for what it has read or written itself: racecheck follows no lane that
/// arrives for its warp.
template <class C>
__device__ __forceinline__ void initialize_barriers(ScanStorage<C>& s) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      ptx::initialize_barrier(s.record_ready[i], 1);
      ptx::initialize_barrier(s.stage_full[i], 32);
      ptx::initialize_barrier(s.stage_free[i], C::kGroup * C::kScans);
    }
    for (int i = 0; i < C::kScans; ++i) {
      ptx::initialize_barrier(s.output_full[i], C::kGroup);
      ptx::initialize_barrier(s.output_free[i], 32);
    }
  }
  if constexpr (C::kChannelGates) {
    if (threadIdx.x < kHeadKeys) s.no_decay[threadIdx.x] = 1.f;
  } else {
    clear_above_diagonal(s);
  }
  ptx::fence_async_readers();
  __syncthreads();
}

template <class C>
__device__ __forceinline__ void scan_block(const Params& p, const TileMaps& maps) {
  extern __shared__ __align__(1024) char memory[];
  auto& storage = *reinterpret_cast<ScanStorage<C>*>(memory);
  initialize_barriers(storage);
  // The scan takes the multiprocessors that it needs no more, and waits for its end itself.
  if constexpr (C::kMaps) ptx::launch_dependents();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / C::kGroup, 0);
  if (group == 0) {
    if constexpr (C::kScans > 1) ptx::keep_registers<C::kServiceRegisters>();
    serve(p, maps, storage);
  } else {
    if constexpr (C::kScans > 1) ptx::take_registers<C::kScanRegisters>();
    GdnScan<C>(p, storage, group - 1).run();
  }
  __syncwarp();  // a lane that waits here would hold up those of its warp that still work
  ptx::wait_for_dependencies();
}

}  // namespace goldenrule::gpu::prefill
