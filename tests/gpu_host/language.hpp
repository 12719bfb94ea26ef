// SPDX-License-Identifier: Apache-2.0
//
// The words of CUDA C++ for a C++ compiler, included in front of every kernel source that is built
// for the CPU (-include). What is an instruction of its own there is a rendezvous of fibers here;
// the assembler of gpu/ptx has its counterpart in ptx/gpu/ptx.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/gpu_host/simt/grid.hpp"
#include "tests/gpu_host/simt/kernels.hpp"

#undef __device__
#undef __host__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __device__
#define __host__
#define __global__ inline  // headers define kernels that are no templates
// Dynamic shared memory is another name of the window (simt/shared_memory.cpp). A variable of its
// own is one for all blocks: right in a kernel whose blocks run one after the other, as they do
// unless they wait for each other.
#define __shared__ thread_local
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// The kernels for sm_90a are those that run here.
#define __CUDA_ARCH_FEAT_SM90_ALL 1

namespace goldenrule::simt {

/// A number that is another one for each thread: looked up where it is used.
template <unsigned (*kLookUp)()>
struct Coordinate {
  operator unsigned() const { return kLookUp(); }  // NOLINT(google-explicit-constructor)
};
template <unsigned (*kLookUp)()>
struct Coordinates {
  Coordinate<kLookUp> x;
};
inline unsigned thread_index() { return this_thread().place.x; }
inline unsigned block_index() { return this_block().place().x; }
inline unsigned block_size() { return static_cast<unsigned>(this_block().threads()); }
inline unsigned grid_size() { return this_block().grid().blocks(); }

template <class T>
struct Exchange {
  T given, taken;
  int source;  ///< lane whose value is taken
};
template <class T>
void exchange(const Lanes& lanes) {
  for (void* lane : lanes) {
    if (lane == nullptr) continue;
    auto& mine = *static_cast<Exchange<T>*>(lane);
    const void* from = lanes[static_cast<std::size_t>(mine.source)];
    if (from == nullptr) fail("a shuffle from a lane that takes no part");
    mine.taken = static_cast<const Exchange<T>*>(from)->given;
  }
}
template <class T>
T shuffle(std::uint32_t mask, T value, int source) {
  Exchange<T> mine{value, value, source};
  this_block().meet(mask, exchange<T>, "a shuffle", &mine);
  return mine.taken;
}
inline int this_lane() { return static_cast<int>(this_thread().place.x) % kWarpSize; }

struct Vote {
  bool given;
  std::uint32_t all;
};
inline void vote(const Lanes& lanes) {
  std::uint32_t all = 0;
  for (int i = 0; i < kWarpSize; ++i) {
    const auto* lane = static_cast<const Vote*>(lanes[static_cast<std::size_t>(i)]);
    if (lane != nullptr && lane->given) all |= std::uint32_t{1} << i;
  }
  for (void* lane : lanes) {
    if (lane != nullptr) static_cast<Vote*>(lane)->all = all;
  }
}

/// Blocks see what others do where they touch one number: perhaps another goes on now.
template <class T, class F>
T exchanged(T* p, F&& f) {
  this_block().perhaps_give_way();
  const T before = *p;
  *p = f(before);
  this_block().grid().progress();
  this_block().perhaps_give_way();
  return before;
}

}  // namespace goldenrule::simt

inline constexpr goldenrule::simt::Coordinates<goldenrule::simt::thread_index> threadIdx{};
inline constexpr goldenrule::simt::Coordinates<goldenrule::simt::block_index> blockIdx{};
inline constexpr goldenrule::simt::Coordinates<goldenrule::simt::block_size> blockDim{};
inline constexpr goldenrule::simt::Coordinates<goldenrule::simt::grid_size> gridDim{};

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  goldenrule::simt::this_block().synchronize(0, 0, {file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  goldenrule::simt::this_block().meet(
      mask, [](const goldenrule::simt::Lanes&) {}, "__syncwarp", nullptr);
}
inline void __threadfence() {}
inline void __nanosleep(unsigned) {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return goldenrule::simt::shuffle(mask, value, source & 31);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return goldenrule::simt::shuffle(mask, value, goldenrule::simt::this_lane() ^ bits);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const int lane = goldenrule::simt::this_lane();
  const int source = lane - static_cast<int>(distance);
  return goldenrule::simt::shuffle(mask, value, source < 0 ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const int lane = goldenrule::simt::this_lane();
  const int source = lane + static_cast<int>(distance);
  return goldenrule::simt::shuffle(mask, value, source > 31 ? lane : source);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  goldenrule::simt::Vote mine{predicate != 0, 0};
  goldenrule::simt::this_block().meet(mask, goldenrule::simt::vote, "a ballot", &mine);
  return mine.all;
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(__ballot_sync(mask, predicate) == mask);
}

/// The sum of what the lanes of the mask give, in all of them.
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  struct Addend {
    T given, sum;
  } mine{value, T{}};
  const auto add = [](const goldenrule::simt::Lanes& lanes) {
    T sum{};
    for (void* lane : lanes) sum += lane == nullptr ? T{} : static_cast<Addend*>(lane)->given;
    for (void* lane : lanes) {
      if (lane != nullptr) static_cast<Addend*>(lane)->sum = sum;
    }
  };
  goldenrule::simt::this_block().meet(mask, add, "a sum of lanes", &mine);
  return mine.sum;
}

inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline std::uint32_t __byte_perm(std::uint32_t x, std::uint32_t y, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(bytes >> 8 * (selector >> 4 * i & 7U) & 0xffU) << 8 * i;
  }
  return result;
}
inline int min(int x, int y) { return std::min(x, y); }
inline int max(int x, int y) { return std::max(x, y); }
inline std::int64_t min(std::int64_t x, std::int64_t y) { return std::min(x, y); }
inline std::int64_t max(std::int64_t x, std::int64_t y) { return std::max(x, y); }

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  return goldenrule::simt::exchanged(p, [=](T before) { return before + x; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> x) {
  return goldenrule::simt::exchanged(p, [=](T before) { return std::min(before, x); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  return goldenrule::simt::exchanged(p, [=](T before) { return std::max(before, x); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> x) {
  return goldenrule::simt::exchanged(p, [=](T) { return x; });
}

/// A launch that knows the types of the kernel's parameters, as nvcc's header has it.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  goldenrule::simt::add_kernel(kernel, "a kernel outside the tables");
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        return cudaLaunchKernelExC(config, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
}
