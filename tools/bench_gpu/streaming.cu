// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/streaming.hpp"

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/host/cuda_handles.hpp"

namespace goldenrule::bench {
namespace {

constexpr int kThreads = 256;

// A block of 64 KiB / n handles its bytes in rounds of Unroll vectors a thread, all loads first.
template <Stream Kind, int Unroll>
__global__ void __launch_bounds__(kThreads) stream_kernel(uint4* data, std::size_t half) {
  const std::size_t first =
      static_cast<std::size_t>(blockIdx.x) * (kThreads * Unroll) + threadIdx.x;
  uint4 x[Unroll];
#pragma unroll
  for (int i = 0; i < Unroll; ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i) * kThreads;
    if constexpr (Kind == Stream::kWrite) {
      const auto word = static_cast<std::uint32_t>(at);
      x[i] = make_uint4(word, ~word, word * 2654435761U, word ^ 0x9e3779b9U);
    } else {
      x[i] = data[at];
    }
  }
  if constexpr (Kind == Stream::kRead) {
    std::uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < Unroll; ++i) any |= x[i].x & x[i].y & x[i].z & x[i].w;
    if (any == 0x5a5a5a5aU) data[first].x = any;  // keeps the loads; practically never taken
  } else {
    const std::size_t to = Kind == Stream::kCopy ? half : 0;
#pragma unroll
    for (int i = 0; i < Unroll; ++i) {
      x[i].x ^= 1U;
      data[to + first + static_cast<std::size_t>(i) * kThreads] = x[i];
    }
  }
}

template <Stream Kind, int Unroll>
void launch(void* data, std::size_t bytes, cudaStream_t stream) {
  const std::size_t per_block = std::size_t{16} * kThreads * Unroll;
  const std::size_t touched = Kind == Stream::kCopy ? bytes / 2 : bytes;
  stream_kernel<Kind, Unroll><<<static_cast<unsigned>(touched / per_block), kThreads, 0, stream>>>(
      static_cast<uint4*>(data), bytes / 32);
}

template <Stream Kind>
void launch_unrolled(void* data, std::size_t bytes, int blocks_per_64k, cudaStream_t stream) {
  switch (blocks_per_64k) {
    case 2:
      return launch<Kind, 8>(data, bytes, stream);
    case 4:
      return launch<Kind, 4>(data, bytes, stream);
    default:
      return launch<Kind, 2>(data, bytes, stream);
  }
}

// Eight independent chains a thread; the result is stored only if it is what it never is.
__global__ void __launch_bounds__(kFmaThreads) fma_kernel(float* out, float x) {
  constexpr int kChains = 8;
  float y[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) y[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 8
  for (int i = 0; i < kFmaPerThread / kChains; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) y[c] = fmaf(y[c], x, x);
  }
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += y[c];
  if (sum == 1.f) out[threadIdx.x] = sum;
}

__device__ float uniform(std::size_t i, unsigned seed) {
  auto x = static_cast<std::uint32_t>(i * 0x9e3779b97f4a7c15ULL >> 32) ^ seed * 0x85ebca6bU ^
           static_cast<std::uint32_t>(i);
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  x ^= x >> 16;
  return static_cast<float>(x >> 8) * 0x1p-23f - 1.f;
}

template <class T>
__global__ void fill_kernel(T* data, std::size_t count, float amplitude, unsigned seed) {
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    data[i] = static_cast<T>(amplitude * uniform(i, seed));
  }
}

}  // namespace

void launch_stream(Stream kind, void* data, std::size_t bytes, int blocks_per_64k,
                   cudaStream_t stream) {
  switch (kind) {
    case Stream::kInPlace:
      launch_unrolled<Stream::kInPlace>(data, bytes, blocks_per_64k, stream);
      break;
    case Stream::kRead:
      launch_unrolled<Stream::kRead>(data, bytes, blocks_per_64k, stream);
      break;
    case Stream::kWrite:
      launch_unrolled<Stream::kWrite>(data, bytes, blocks_per_64k, stream);
      break;
    case Stream::kCopy:
      launch_unrolled<Stream::kCopy>(data, bytes, blocks_per_64k, stream);
      break;
  }
  gpu::check_cuda(cudaGetLastError(), "streaming kernel");
}

void launch_fma(void* out, int blocks, cudaStream_t stream) {
  fma_kernel<<<static_cast<unsigned>(blocks), kFmaThreads, 0, stream>>>(static_cast<float*>(out),
                                                                        0.999f);
  gpu::check_cuda(cudaGetLastError(), "fma kernel");
}

void launch_fill(Fill kind, void* data, std::size_t count, float amplitude, unsigned seed,
                 cudaStream_t stream) {
  if (kind == Fill::kF32) {
    fill_kernel<<<2048, kThreads, 0, stream>>>(static_cast<float*>(data), count, amplitude, seed);
  } else {
    fill_kernel<<<2048, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(data), count, amplitude,
                                               seed);
  }
  gpu::check_cuda(cudaGetLastError(), "fill kernel");
}

}  // namespace goldenrule::bench
