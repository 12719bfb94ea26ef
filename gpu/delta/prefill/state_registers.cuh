// SPDX-License-Identifier: Apache-2.0
//
// The state of 64 values of a head as the accumulator of a warpgroup: S^T [64 x 128] in fp32, 64
// registers of a thread (see ptx/warpgroup.cuh for who holds what). Loaded from and stored to
// either layout and type: in [V,K] a lane takes pairs of neighbouring channels, four lanes a sector
// of 32 bytes, as one vector each (p.vector_state); in [K,V] eight lanes take eight neighbouring
// values. bf16 is exact on the way in and rounded once on the way out.
#pragma once

#include "gpu/common/slots.cuh"
#include "gpu/delta/prefill/params.hpp"
#include "gpu/delta/prefill/terms.cuh"
#include "gpu/delta/prefill/tile.cuh"
#include "gpu/ptx/registers.cuh"

namespace goldenrule::gpu::prefill {

inline constexpr int kStateRegisters = 64;

/// Which elements a lane holds in state[4 n] to state[4 n + 3]: values first_value + {0, apart} by
/// two neighbouring channels, first_channel + channel(n) and the next. As in the accumulator of a
/// warpgroup; a warp on its own may order its rows, and its channels by fours.
struct StateOrder {
  int apart = 8;
  int neighbours = 2;  // channels of a lane, 2 or 4; four lanes share as many

  [[nodiscard]] __device__ constexpr int channel(int n) const {
    const int pairs = neighbours / 2;
    return n / pairs * 4 * neighbours + n % pairs * 2;
  }
};
struct StateLane {
  int first_value, first_channel;
};

template <class Element, bool kKeysOutside, StateOrder kOrder>
struct StateAccess {
  /// Calls f(address of the pair's first element, register of it). Addresses are a base and
  /// constants, or steps from pair to pair: this code runs once for a state, so what it costs is
  /// mostly to fetch its instructions.
  template <class F>
  __device__ __forceinline__ static void for_pairs(Element* head, int outer, StateLane lane,
                                                   F&& f) {
    outer = ptx::hidden(outer);  // no multiple of it is kept over the loop around
    if constexpr (kKeysOutside) {
      Element* at = head + static_cast<int64_t>(lane.first_channel) * outer + lane.first_value;
#pragma unroll
      for (int n = 0; n < kHeadKeys / 8; ++n) {
        f(at, 4 * n);
        f(at + kOrder.apart, 4 * n + 2);
        at += (kOrder.channel(n + 1) - kOrder.channel(n)) * static_cast<int64_t>(outer);
      }
    } else {
      Element* at = head + static_cast<int64_t>(lane.first_value) * outer + lane.first_channel;
      Element* below = at + kOrder.apart * static_cast<int64_t>(outer);
#pragma unroll
      for (int n = 0; n < kHeadKeys / 8; ++n) {
        f(at + kOrder.channel(n), 4 * n);
        f(below + kOrder.channel(n), 4 * n + 2);
      }
    }
  }
  __device__ __forceinline__ static float2 load(const Element* at, int outer) {
    if constexpr (kKeysOutside) {
      return make_float2(to_float(at[0]), to_float(at[outer]));
    } else {
      return load_pair(at);
    }
  }
  __device__ __forceinline__ static void store(Element* at, int outer, float2 x) {
    if constexpr (kKeysOutside) {
      store_rounded(at, x.x);
      store_rounded(at + outer, x.y);
    } else {
      store_pair(at, x);
    }
  }

 private:
  __device__ __forceinline__ static float to_float(float x) { return x; }
  __device__ __forceinline__ static float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
  __device__ __forceinline__ static void store_rounded(float* to, float x) { *to = x; }
  __device__ __forceinline__ static void store_rounded(__nv_bfloat16* to, float x) {
    *to = __float2bfloat16_rn(x);
  }
  __device__ __forceinline__ static float2 load_pair(const float* at) {
    return *reinterpret_cast<const float2*>(at);
  }
  __device__ __forceinline__ static float2 load_pair(const __nv_bfloat16* at) {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(at);
    return make_float2(bf16_low(pair), bf16_high(pair));
  }
  __device__ __forceinline__ static void store_pair(float* to, float2 x) {
    *reinterpret_cast<float2*>(to) = x;
  }
  __device__ __forceinline__ static void store_pair(__nv_bfloat16* to, float2 x) {
    *reinterpret_cast<uint32_t*>(to) = bf16_pair(x.x, x.y);
  }
};

/// Calls f(tag of the state's element type, tag of its layout): one uniform branch.
template <StateOrder kOrder, class F>
__device__ __forceinline__ void with_state_format(const Params& p, F&& f) {
  if (p.bf16_state != 0) {
    if (p.kv_layout != 0) {
      f(StateAccess<__nv_bfloat16, true, kOrder>{}, static_cast<__nv_bfloat16*>(nullptr));
    } else {
      f(StateAccess<__nv_bfloat16, false, kOrder>{}, static_cast<__nv_bfloat16*>(nullptr));
    }
  } else if (p.kv_layout != 0) {
    f(StateAccess<float, true, kOrder>{}, static_cast<float*>(nullptr));
  } else {
    f(StateAccess<float, false, kOrder>{}, static_cast<float*>(nullptr));
  }
}

template <StateOrder kOrder = StateOrder{}>
__device__ __forceinline__ void load_state(const Params& p, int64_t slot, int hv, StateLane lane,
                                           float (&state)[kStateRegisters]) {
  if (p.state.data == nullptr) {
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) state[i] = 0.f;
    return;
  }
  with_state_format<kOrder>(p, [&]<class Access, class Stored>(Access, Stored*) {
    Access::for_pairs(state_head<Stored>(p.state, slot, hv), p.state.outer, lane,
                      [&](const Stored* at, int i) {
                        const float2 x = Access::load(at, p.state.outer);
                        state[i] = x.x;
                        state[i + 1] = x.y;
                      });
  });
}

template <StateOrder kOrder = StateOrder{}>
__device__ __forceinline__ void store_state(const Params& p, const StateView& view, int64_t block,
                                            int hv, StateLane lane,
                                            const float (&state)[kStateRegisters]) {
  with_state_format<kOrder>(p, [&]<class Access, class Stored>(Access, Stored*) {
    Access::for_pairs(state_head<Stored>(view, block, hv), view.outer, lane,
                      [&](Stored* at, int i) {
                        Access::store(at, view.outer, make_float2(state[i], state[i + 1]));
                      });
  });
}

}  // namespace goldenrule::gpu::prefill
