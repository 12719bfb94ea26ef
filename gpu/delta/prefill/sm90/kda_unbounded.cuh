// SPDX-License-Identifier: Apache-2.0
//
// Gates without a bound: by anchors (kda_anchors.cuh) where those of a chunk allow it, else by
// levels (kda_levels.cuh), which take three times as long. The choice is made by the gates of the
// chunk and head alone, so a call gives the same bits whoever works on it.
//
// Levels are called, not inlined, so that the registers of what is rare are not those of every
// chunk. All four warps come together between the choice and what levels write to shared memory:
// it is where the inverse of the chunk before has its terms.
#pragma once

#include "gpu/delta/prefill/sm90/kda_anchors.cuh"
#include "gpu/delta/prefill/sm90/kda_levels.cuh"

namespace goldenrule::gpu::prefill {

__device__ __noinline__ inline void make_decays_of_levels(const Params& p, ChunkPlace at,
                                                          KdaPreparationStorage& storage,
                                                          KdaPlace place) {
  KdaLevels(storage, place).make_decays(p, at);
}
__device__ __noinline__ inline float4 multiply_by_levels(KdaPreparationStorage& storage,
                                                         KdaPlace place) {
  return KdaLevels(storage, place).multiply_tokens();
}

class KdaUnbounded {
 public:
  __device__ __forceinline__ KdaUnbounded(KdaPreparationStorage& storage, KdaPlace at_place)
      : place(at_place), s_(storage), anchors_(storage, at_place) {}

  KdaPlace place;

  __device__ __forceinline__ void fetch(const Params& p, const ChunkPlace& at) {
    anchors_.place = place;
    if (may_sum(p)) anchors_.fetch(p, at);
  }

  __device__ __forceinline__ void make_decays(const Params& p, const ChunkPlace& at) {
    anchors_.place = place;
    const bool allowed = may_sum(p) && anchors_.make_summed_decays(p, at);
    const bool all_allowed = __all_sync(kAllLanes, static_cast<int>(allowed)) != 0;
    if (place.lane == 0) {
      s_.asks_for_levels[2 * place.half + place.side] = all_allowed ? 0 : 1;
    }
    place.synchronize();
    const int* asks = s_.asks_for_levels;
    by_anchors_ = (asks[0] | asks[1] | asks[2] | asks[3]) == 0;
    if (!by_anchors_) make_decays_of_levels(p, at, s_, place);
  }

  template <class F>
  __device__ __forceinline__ void multiply(F&& then) {
    if (by_anchors_) {
      anchors_.place = place;
      anchors_.multiply(then);
      return;
    }
    const float4 between = multiply_by_levels(s_, place);
    then();
    KdaLevels(s_, place).finish_between(between);
  }

  [[nodiscard]] __device__ __forceinline__ bool needs_own_products() const { return !by_anchors_; }

 private:
  KdaPreparationStorage& s_;
  KdaAnchors anchors_;
  bool by_anchors_ = false;
};

}  // namespace goldenrule::gpu::prefill
