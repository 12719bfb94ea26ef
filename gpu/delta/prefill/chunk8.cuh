// SPDX-License-Identifier: Apache-2.0
//
// Prefill as exact as the recurrent kernels, for K = 128 and one gate per head: the closed form of
// MTP (shared/mtp_tokens.cuh), eight tokens at a time along a sequence, with its products on the
// tensor cores. All operands are bf16 numbers that came as such, or three bf16 terms of an fp32
// number, so results keep the contracts of the recurrent kernels.
//
// A block is a head of one sequence and 16 value rows for each warp that carries their state in
// registers (chunk8_state.cuh); one more warp prepares the next chunk (chunk8_tokens.cuh). One
// barrier ends each chunk. What a chunk waits for is the chain within it, not the tensor cores: one
// splits the state into operands, multiplies, goes through the triangle and adds to the state.
//
// Chunks are counted from the start of the sequence. A checkpoint within one is made of the state
// in front of the chunk, which then is taken up again, so it moves no chunk: it changes no bit of
// anything else, and has the bits of a call that ends there.
#pragma once

#include "gpu/delta/prefill/begin.cuh"
#include "gpu/delta/prefill/checkpoints.cuh"
#include "gpu/delta/prefill/chunk8_state.cuh"
#include "gpu/delta/prefill/padding.cuh"

namespace goldenrule::gpu::prefill {

/// A warp that carries the state along a sequence.
template <class C>
class Chunk8Walk {
 public:
  __device__ __forceinline__ Chunk8Walk(const Params& p, int n, BlockPlace at, Span span,
                                        int64_t start, Fragment lane, Chunk8Storage<C>& storage)
      : p_(p),
        at_(at),
        span_(span),
        lane_(lane),
        storage_(storage),
        walk_(p, n, span.count),
        final_(final_slot(p, n, start)),
        state_(at, lane) {
    state_.load(p, start, at.hv);
    request_values(next_, 0);
    request_values(after_next_, 1);
  }

  /// Stores the state in front of all tokens where it is wanted.
  __device__ __forceinline__ void begin() { end_at(0, 0); }

  __device__ __forceinline__ void pass(int chunk) {
    const int count = count_of(chunk);
    const Chunk8Weights& weights = storage_.weights[chunk % 2];
    const int buffer = chunk % C::kRowBuffers;
    LaneTokens<C> v, x, y;
    next_.get(p_, v);
    next_ = after_next_;
    request_values(after_next_, chunk + 2);
    state_.multiply(storage_.k[buffer], storage_.q[buffer], weights, x, y);
    recurrent::solve_triangle<C, true>(kMtpTokens, Chunk8Columns(weights, lane_), lane_, v, x, y,
                                       d_);
    state_.store_output(p_, at_.hv, span_.first + chunk * kMtpTokens, count, y);
    end_at(chunk, count);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ int count_of(int chunk) const {
    return tokens_of_chunk(chunk, span_.count);
  }
  __device__ __forceinline__ void request_values(recurrent::LaneValues<C>& values, int chunk) {
    BlockPlace at = at_;
    at.token0 = span_.first + chunk * kMtpTokens;
    values = {};
    values.request(p_, at, count_of(chunk), state_.row(), lane_);
  }

  /// The state behind the chunk's first `count` tokens, and on the way those of checkpoints.
  __device__ __forceinline__ void end_at(int chunk, int count) {
    const int before = chunk * kMtpTokens;
    auto& kept = storage_.kept[lane_.warp];
#pragma unroll 1
    while (true) {
      const int wanted = walk_.after() - before;
      const int end = wanted < count ? wanted : count;
      if (end < count) state_.save(kept);
      if (end > 0) {
        state_.follow(storage_.k[chunk % C::kRowBuffers], storage_.weights[chunk % 2], d_, end);
      }
      store_due(
          p_, walk_, final_, before + end, span_.count,
          [&](const StateView& view, int64_t block) { state_.store(p_, view, block, at_.hv); });
      if (end == count) return;
      state_.restore(kept);
    }
  }

  const Params& p_;
  BlockPlace at_;
  Span span_;
  Fragment lane_;
  Chunk8Storage<C>& storage_;
  CheckpointWalk walk_;
  int64_t final_;
  Chunk8State<C> state_;
  recurrent::LaneValues<C> next_, after_next_;
  LaneTokens<C> d_;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    chunk8_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto& storage = *reinterpret_cast<Chunk8Storage<C>*>(shared);
  const Fragment lane = recurrent::this_fragment();
  const auto [at, n] = begin_sequence<C>(p);
  const Span span = tokens_of(p, n);
  const int64_t start = start_slot(p, n);
  if (start == kNoSlot) {
    write_zeros<C>(p, at, span);
    return;
  }
  if (threadIdx.x == 0) ptx::initialize_barrier(storage.meeting, C::kThreads);
  __syncthreads();
  const int chunks = (span.count + kMtpTokens - 1) / kMtpTokens;
  if (lane.warp == C::kWarps) {
    Chunk8Preparation<C> preparation(p, at, span, lane, storage);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      preparation.prepare(chunk);
      meet(storage, chunk);
    }
  } else {
    Chunk8Walk<C> walk(p, n, at, span, start, lane, storage);
    walk.begin();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      meet(storage, chunk);
      walk.pass(chunk);
    }
  }
}

}  // namespace goldenrule::gpu::prefill
