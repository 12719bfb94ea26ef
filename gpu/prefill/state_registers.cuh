// SPDX-License-Identifier: Apache-2.0
//
// The state of 64 values of a head as the accumulator of a warpgroup: S^T [64 x 128] in fp32, 64
// registers of a thread (see ptx/warpgroup.cuh for who holds what). Loaded from and stored to
// either layout and type: in [V,K] a lane takes pairs of neighbouring channels, four lanes a sector
// of 32 bytes; in [K,V] eight lanes take eight neighbouring values. bf16 is exact on the way in and
// rounded once on the way out.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/prefill/params.hpp"
#include "gpu/prefill/tile.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kStateRegisters = 64;

/// Which elements a lane holds: values first_value + {0, 8}, channels 8 n + first_channel + {0, 1}.
struct StateLane {
  int first_value, first_channel;
};

template <class Element, bool kKeysOutside>
struct StateAccess {
  /// Calls f(address of the pair's first element, distance to the second, register of the first).
  template <class F>
  __device__ __forceinline__ static void for_pairs(Element* head, int outer, StateLane lane,
                                                   F&& f) {
#pragma unroll
    for (int n = 0; n < kHeadKeys / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int value = lane.first_value + 8 * half;
        const int channel = lane.first_channel + 8 * n;
        const int64_t at = kKeysOutside ? static_cast<int64_t>(channel) * outer + value
                                        : static_cast<int64_t>(value) * outer + channel;
        f(head + at, kKeysOutside ? outer : 1, 4 * n + 2 * half);
      }
    }
  }
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void store_rounded(float* to, float x) { *to = x; }
__device__ __forceinline__ void store_rounded(__nv_bfloat16* to, float x) {
  *to = __float2bfloat16_rn(x);
}

/// Calls f(tag of the state's element type, tag of its layout): one uniform branch.
template <class F>
__device__ __forceinline__ void with_state_format(const Params& p, F&& f) {
  if (p.bf16_state != 0) {
    if (p.kv_layout != 0) {
      f(StateAccess<__nv_bfloat16, true>{}, static_cast<__nv_bfloat16*>(nullptr));
    } else {
      f(StateAccess<__nv_bfloat16, false>{}, static_cast<__nv_bfloat16*>(nullptr));
    }
  } else if (p.kv_layout != 0) {
    f(StateAccess<float, true>{}, static_cast<float*>(nullptr));
  } else {
    f(StateAccess<float, false>{}, static_cast<float*>(nullptr));
  }
}

__device__ __forceinline__ void load_state(const Params& p, int64_t slot, int hv, StateLane lane,
                                           float (&state)[kStateRegisters]) {
  if (p.state.data == nullptr) {
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) state[i] = 0.f;
    return;
  }
  with_state_format(p, [&]<class Access, class Stored>(Access, Stored*) {
    Access::for_pairs(state_head<Stored>(p.state, slot, hv), p.state.outer, lane,
                      [&](const Stored* at, int next, int i) {
                        state[i] = to_float(at[0]);
                        state[i + 1] = to_float(at[next]);
                      });
  });
}

__device__ __forceinline__ void store_state(const Params& p, const StateView& view, int64_t block,
                                            int hv, StateLane lane,
                                            const float (&state)[kStateRegisters]) {
  with_state_format(p, [&]<class Access, class Stored>(Access, Stored*) {
    Access::for_pairs(state_head<Stored>(view, block, hv), view.outer, lane,
                      [&](Stored* at, int next, int i) {
                        store_rounded(at, state[i]);
                        store_rounded(at + next, state[i + 1]);
                      });
  });
}

}  // namespace goldenrule::gpu::prefill
