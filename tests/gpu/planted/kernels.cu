// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include "tests/gpu/planted/kernels.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;

constexpr int kBlocks = 3;    // fewer than tiles: every block loops
constexpr int kThreads = 64;  // one value row each; two warps, so that barriers matter
constexpr int kMaxK = 256;

struct Shared {
  float k[kMaxK], q[kMaxK];
  float k_squares[2], q_squares[2];  // of each warp
};

__device__ float sum_of_warp(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

/// The raw k and q of a head go to shared memory, and the sum of their squares with them.
__device__ void load_tokens(const Args& a, int64_t b, int64_t h, int K, Shared& s) {
  const auto* k = static_cast<const __nv_bfloat16*>(a.k.data) + (b * a.H + h) * a.K;
  const auto* q = static_cast<const __nv_bfloat16*>(a.q.data) + (b * a.H + h) * a.K;
  float k2 = 0.f, q2 = 0.f;
  for (int i = static_cast<int>(threadIdx.x); i < K; i += kThreads) {
    s.k[i] = __bfloat162float(k[i]);
    s.q[i] = __bfloat162float(q[i]);
    k2 += s.k[i] * s.k[i];
    q2 += s.q[i] * s.q[i];
  }
  k2 = sum_of_warp(k2);
  q2 = sum_of_warp(q2);
  if (threadIdx.x % 32 == 0) {
    s.k_squares[threadIdx.x / 32] = k2;
    s.q_squares[threadIdx.x / 32] = q2;
  }
}

/// sum of state[i] x[i], in eight chains.
__device__ float dot(const float* state, const float* x, int K) {
  float sums[8] = {};
  for (int first = 0; first < K; first += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i < K) sums[i] += state[first + i] * x[first + i];
    }
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// One step of one value row.
template <Mistake M>
__device__ void step(const Args& a, int64_t b, int64_t hv, int64_t row, int K, float* state,
                     const Shared& s) {
  const int64_t head = b * a.HV + hv;
  const float x =
      static_cast<const float*>(a.gate.data)[head] + static_cast<const float*>(a.dt_bias.data)[hv];
  const float softplus = fmaxf(x, 0.f) + log1pf(expf(-fabsf(x)));
  const float alpha = expf(-expf(static_cast<const float*>(a.A_log.data)[hv]) * softplus);
  const float beta = 1.f / (1.f + expf(-static_cast<const float*>(a.beta.data)[head]));
  const auto eps = static_cast<float>(a.l2_eps);
  const float k_factor = 1.f / sqrtf(s.k_squares[0] + s.k_squares[1] + eps);
  const float q_factor = static_cast<float>(a.scale) / sqrtf(s.q_squares[0] + s.q_squares[1] + eps);
  for (int i = 0; i < K; ++i) state[i] *= alpha;
  const float v = __bfloat162float(static_cast<const __nv_bfloat16*>(a.v.data)[head * a.V + row]);
  const float d = beta * (v - k_factor * dot(state, s.k, K)) * k_factor;
  for (int i = 0; i < K; ++i) state[i] += s.k[i] * d;
  auto* o = static_cast<__nv_bfloat16*>(a.o.data) + head * a.V + row;
  const float before = M == Mistake::kUninitialisedRead ? __bfloat162float(*o) : 0.f;
  *o = __float2bfloat16(before + q_factor * dot(state, s.q, K));
}

template <Mistake M>
__global__ void decode(const Args a) {
  __shared__ Shared s;
  const int K = M == Mistake::kKTailIgnored && a.K > 32 ? static_cast<int>(a.K) / 32 * 32
                                                        : static_cast<int>(a.K);
  const auto tiles_a_head = static_cast<int>((a.V + kThreads - 1) / kThreads);
  const int tiles = static_cast<int>(a.B * a.HV) * tiles_a_head;
  const int shared_tiles = M == Mistake::kRemainderTilesDropped ? tiles / kBlocks * kBlocks : tiles;
  for (int tile = static_cast<int>(blockIdx.x); tile < shared_tiles; tile += kBlocks) {
    const int64_t head = tile / tiles_a_head, b = head / a.HV, hv = head % a.HV;
    const int64_t row = tile % tiles_a_head * kThreads + threadIdx.x;
    int64_t slot =
        a.state_indices.data != nullptr ? static_cast<const int32_t*>(a.state_indices.data)[b] : b;
    if (M == Mistake::kPadWritesSlot0 && slot == a.pad_slot) slot = 0;
    if (slot < 0 || slot >= a.slots) {
      if (row < a.V) static_cast<__nv_bfloat16*>(a.o.data)[head * a.V + row] = 0.f;
      continue;
    }
    int64_t offset = ((slot * a.HV + hv) * a.V + row) * a.K;
    if (M == Mistake::kInt32Offset) offset = static_cast<int32_t>(offset);
    load_tokens(a, b, hv / (a.HV / a.H), K, s);
    if (M != Mistake::kSharedMemoryRace && M != Mistake::kBarrierInBranch) __syncthreads();
    const int64_t first_row_of_warp = row - threadIdx.x % 32;
    if (M == Mistake::kBarrierInBranch && first_row_of_warp < a.V) __syncthreads();
    if (row < a.V || M == Mistake::kVTailGarbage) {
      step<M>(a, b, hv, row, K, static_cast<float*>(a.state.data) + offset, s);
    }
    __syncthreads();  // the next tile overwrites k and q
  }
}

template <Mistake M>
goldenrule_gpu_status launch(const Args* args, char* message, std::size_t size) {
  decode<M><<<kBlocks, kThreads, 0, static_cast<cudaStream_t>(args->stream)>>>(*args);
  if (size > 0) message[0] = '\0';
  return cudaGetLastError() == cudaSuccess ? GOLDENRULE_GPU_OK : GOLDENRULE_GPU_CUDA_ERROR;
}

}  // namespace

PlantedKernel planted_kernel(Mistake mistake) {
  switch (mistake) {
    case Mistake::kNone:
      return launch<Mistake::kNone>;
    case Mistake::kVTailGarbage:
      return launch<Mistake::kVTailGarbage>;
    case Mistake::kKTailIgnored:
      return launch<Mistake::kKTailIgnored>;
    case Mistake::kRemainderTilesDropped:
      return launch<Mistake::kRemainderTilesDropped>;
    case Mistake::kInt32Offset:
      return launch<Mistake::kInt32Offset>;
    case Mistake::kPadWritesSlot0:
      return launch<Mistake::kPadWritesSlot0>;
    case Mistake::kSharedMemoryRace:
      return launch<Mistake::kSharedMemoryRace>;
    case Mistake::kUninitialisedRead:
      return launch<Mistake::kUninitialisedRead>;
    case Mistake::kBarrierInBranch:
      return launch<Mistake::kBarrierInBranch>;
  }
  return nullptr;
}

}  // namespace goldenrule::test
